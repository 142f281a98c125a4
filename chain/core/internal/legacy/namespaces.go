package legacy

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// Namespaces declares namespaces. A deleted namespace stays in phase Terminating until its
// spec.finalizers are empty. Only namespaces/finalize can remove them; the namespace controller
// does so once the namespace is empty.
func Namespaces() *kind.Kind[*corev1.Namespace] {
	return &kind.Kind[*corev1.Namespace]{
		Plural:        "namespaces",
		ShortNames:    []string{"ns"},
		ClusterScoped: true,
		Name:          apivalidation.ValidateNamespaceName,
		Default: func(n *corev1.Namespace) {
			if n.Name != "" { // Canonicalize adds the label once generateName has produced a name
				labelWithName(n)
			}
			setIfEmpty(&n.Status.Phase, corev1.NamespaceActive)
		},
		PrepareCreate: func(_ context.Context, n *corev1.Namespace) {
			n.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
			if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
				n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
			}
		},
		PrepareUpdate: func(_ context.Context, n, old *corev1.Namespace) {
			n.Spec.Finalizers = old.Spec.Finalizers
		},
		Canonicalize: labelWithName,
		Validate: func(_ context.Context, n *corev1.Namespace) field.ErrorList {
			var errs field.ErrorList
			for _, f := range n.Spec.Finalizers {
				errs = append(errs, validateFinalizer(f, field.NewPath("spec", "finalizers"))...)
			}
			return errs
		},
		Table: kind.Table[*corev1.Namespace]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Status", Description: "Whether the namespace is active or being deleted."},
				kind.AgeColumn(),
			},
			Row: func(n *corev1.Namespace) []any {
				return []any{n.Name, string(n.Status.Phase), kind.Age(n)}
			},
		},
		Status: &kind.Status[*corev1.Namespace]{Validate: validateNamespaceStatus},
		Subresources: []kind.Subresource[*corev1.Namespace]{{
			Name:       "finalize",
			UpdateOnly: true,
			Prepare:    func(_ context.Context, n, old *corev1.Namespace) { n.Status = old.Status },
			Validate: func(_ context.Context, n, _ *corev1.Namespace) field.ErrorList {
				var errs field.ErrorList
				for i, f := range n.Spec.Finalizers {
					errs = append(errs, validateFinalizer(f, field.NewPath("spec", "finalizers").Index(i))...)
				}
				return errs
			},
			ResetFields: []string{"status"},
		}},
		Fields: map[string]func(*corev1.Namespace) string{
			"status.phase": func(n *corev1.Namespace) string { return string(n.Status.Phase) },
		},
		Adjust: func(store *genericregistry.Store) {
			store.ShouldDeleteDuringUpdate = func(
				ctx context.Context, key string, obj, existing runtime.Object,
			) bool {
				return len(obj.(*corev1.Namespace).Spec.Finalizers) == 0 &&
					genericregistry.ShouldDeleteDuringUpdate(ctx, key, obj, existing)
			}
		},
		Wrap:   func(s *kind.Storage) rest.Storage { return newNamespaceREST(s) },
		Quirks: kind.Quirks{NameOnUpdate: true},
	}
}

func labelWithName(n *corev1.Namespace) {
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
}

// validateFinalizer accepts well-known finalizers and finalizers with a domain prefix.
func validateFinalizer(f corev1.FinalizerName, at *field.Path) field.ErrorList {
	errs := apivalidation.ValidateFinalizerName(string(f), at)
	switch {
	case strings.Contains(string(f), "/"):
	case f == corev1.FinalizerKubernetes, f == metav1.FinalizerOrphanDependents,
		f == metav1.FinalizerDeleteDependents:
	default:
		errs = append(errs, field.Invalid(at, f,
			"name is neither a standard finalizer name nor is it fully qualified"))
	}
	return errs
}

func validateNamespaceStatus(_ context.Context, n, _ *corev1.Namespace) field.ErrorList {
	want, when := corev1.NamespaceActive, "without"
	if n.DeletionTimestamp != nil {
		want, when = corev1.NamespaceTerminating, "with"
	}
	if n.Status.Phase == want {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("status", "Phase"), n.Status.Phase,
		"the phase of a namespace "+when+" deletionTimestamp must be "+string(want))}
}
