package podlifecycle

import (
	"context"
	"strings"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
)

// maxConditions is the maximum number of conditions of a request or an eviction.
const maxConditions = 100

// EvictionRequests declares evictionrequests.
func EvictionRequests() *kind.Kind[*lifecyclev1alpha1.EvictionRequest] {
	type T = *lifecyclev1alpha1.EvictionRequest
	return &kind.Kind[T]{
		Plural: "evictionrequests",
		Validate: func(_ context.Context, r T) field.ErrorList {
			s, at := &r.Spec, field.NewPath("spec")
			var errs field.ErrorList
			if p := s.Target.Pod; p == nil {
				errs = append(errs, noTarget(at.Child("target")))
			} else {
				errs = append(errs, validatePod(p.Name, string(p.UID), at.Child("target", "pod"))...)
			}
			errs = append(errs, validateParticipant(s.Requester, at.Child("requester"))...)
			domain, _, _ := strings.Cut(s.Requester, "/")
			for _, suffix := range []string{"k8s.io", "kubernetes.io"} {
				if domain == suffix || strings.HasSuffix(domain, "."+suffix) {
					errs = append(errs, field.Invalid(at.Child("requester"), s.Requester, suffix+" is reserved"))
				}
			}
			return append(errs, validateIntent(s.Intent, at.Child("intent"))...)
		},
		ValidateUpdate: func(_ context.Context, r, old T) field.ErrorList {
			s, at := &r.Spec, field.NewPath("spec")
			errs := apivalidation.ValidateImmutableField(s.Target, old.Spec.Target, at.Child("target"))
			errs = append(errs, apivalidation.ValidateImmutableField(s.Requester, old.Spec.Requester,
				at.Child("requester"))...)
			if s.Intent != old.Spec.Intent {
				errs = append(errs, validateIntent(s.Intent, at.Child("intent"))...)
			}
			return errs
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Pod", Description: "Pod that should be evicted."},
				{Name: "Requester", Description: "Who requests the eviction."},
				{Name: "Intent", Description: "What the requester wants."},
				kind.AgeColumn(),
			},
			Row: func(r T) []any {
				pod := "<none>"
				if p := r.Spec.Target.Pod; p != nil {
					pod = p.Name
				}
				return []any{r.Name, pod, r.Spec.Requester, string(r.Spec.Intent), kind.Age(r)}
			},
		},
		Status: &kind.Status[T]{
			Prepare:     func(_ context.Context, r, old T) { metav1.ResetObjectMetaForStatus(r, old) },
			ResetFields: []string{"metadata", "spec"},
			Validate: func(_ context.Context, r, old T) field.ErrorList {
				s, at := &r.Status, field.NewPath("status")
				return append(validateObservedGeneration(s.ObservedGeneration,
					old.Status.ObservedGeneration, at), validateConditions(s.Conditions, at)...)
			},
		},
		Generation:             true,
		RequireResourceVersion: true,
	}
}

func validateConditions(conditions []metav1.Condition, status *field.Path) field.ErrorList {
	at := status.Child("conditions")
	if len(conditions) > maxConditions {
		return field.ErrorList{field.TooMany(at, len(conditions), maxConditions)}
	}
	return metavalidation.ValidateConditions(conditions, at)
}
