package kind

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateFinalizers is stricter than the registry, which also accepts what custom resources may
// have.
func (k *Kind[T]) validateFinalizers(obj metav1.Object) field.ErrorList {
	if k.Quirks.AnyFinalizers {
		return nil
	}
	return ValidateFinalizers(obj)
}

// ValidateFinalizers checks that finalizers without a domain are Kubernetes' own. The engine calls
// it for every kind without [Quirks.AnyFinalizers]; such a kind may call it for some of its
// requests.
func ValidateFinalizers(obj metav1.Object) field.ErrorList {
	var errs field.ErrorList
	for i, name := range obj.GetFinalizers() {
		switch {
		case strings.Contains(name, "/"):
		case name == "kubernetes" || name == metav1.FinalizerOrphanDependents ||
			name == metav1.FinalizerDeleteDependents:
		default:
			path := field.NewPath("metadata", "finalizers").Index(i)
			errs = append(errs, field.Invalid(path, name,
				"name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}
