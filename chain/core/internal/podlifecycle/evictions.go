package podlifecycle

import (
	"context"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
)

const (
	maxRequesters = 100
	// maxResponders is one more than a pod may name, because the server adds its own.
	maxResponders = 11
)

// Evictions declares the evictions of lifecycle.k8s.io. They are unrelated to the eviction
// subresource of pods.
func Evictions() *kind.Kind[*lifecyclev1alpha1.Eviction] {
	type T = *lifecyclev1alpha1.Eviction
	return &kind.Kind[T]{
		Plural: "evictions",
		Validate: func(_ context.Context, e T) field.ErrorList {
			at := field.NewPath("spec", "target")
			p := e.Spec.Target.Pod
			if p == nil {
				return field.ErrorList{noTarget(at)}
			}
			return validatePod(p.Name, string(p.UID), at.Child("pod"))
		},
		ValidateUpdate: func(_ context.Context, e, old T) field.ErrorList {
			return apivalidation.ValidateImmutableField(e.Spec.Target, old.Spec.Target,
				field.NewPath("spec", "target"))
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Pod", Description: "Pod that is evicted."},
				{Name: "Responder", Description: "Active responder."},
				kind.AgeColumn(),
			},
			Row: func(e T) []any {
				pod, responder := "<none>", "<none>"
				if p := e.Spec.Target.Pod; p != nil {
					pod = p.Name
				}
				if i := active(e.Status.TargetResponders); i >= 0 {
					responder = e.Status.TargetResponders[i].Name
				}
				return []any{e.Name, pod, responder, kind.Age(e)}
			},
		},
		Status: &kind.Status[T]{
			Prepare:     func(_ context.Context, e, old T) { metav1.ResetObjectMetaForStatus(e, old) },
			ResetFields: []string{"metadata", "spec"},
			Validate: func(_ context.Context, e, old T) field.ErrorList {
				return validateEvictionStatus(&e.Status, &old.Status, field.NewPath("status"), time.Now())
			},
		},
		Generation:             true,
		RequireResourceVersion: true,
	}
}

func validateEvictionStatus(
	s, old *lifecyclev1alpha1.EvictionStatus, at *field.Path, now time.Time,
) field.ErrorList {
	errs := validateObservedGeneration(s.ObservedGeneration, old.ObservedGeneration, at)
	errs = append(errs, validateConditions(s.Conditions, at)...)
	ended := false
	for _, t := range []lifecyclev1alpha1.EvictionConditionType{
		lifecyclev1alpha1.EvictionConditionTargetEvicted, lifecyclev1alpha1.EvictionConditionFailed,
	} {
		condition, before := meta.FindStatusCondition(s.Conditions, string(t)),
			meta.FindStatusCondition(old.Conditions, string(t))
		wasTrue := before != nil && before.Status == metav1.ConditionTrue
		if wasTrue && !equality.Semantic.DeepEqual(condition, before) {
			errs = append(errs, field.Invalid(at.Child("conditions"), field.OmitValueType{},
				"the condition "+string(t)+" may not be changed once it is true"))
		}
		ended = ended || wasTrue || condition != nil && condition.Status == metav1.ConditionTrue
	}
	errs = append(errs, validateRequesters(s.Requesters, old.Requesters, at.Child("requesters"))...)
	errs = append(errs, validateTurns(s, old, at.Child("targetResponders"), ended, now)...)
	return append(errs, validateResponders(s, old, at.Child("responders"), now)...)
}

func validateRequesters(list, old []lifecyclev1alpha1.Requester, at *field.Path) field.ErrorList {
	if equality.Semantic.DeepEqual(list, old) {
		return nil
	}
	if len(list) > maxRequesters {
		return field.ErrorList{field.TooMany(at, len(list), maxRequesters)}
	}
	errs := duplicates(list, at, func(r lifecyclev1alpha1.Requester) string { return r.Name })
	for i, r := range list {
		errs = append(errs, validateParticipant(r.Name, at.Index(i).Child("name"))...)
		errs = append(errs, validateIntent(r.Intent, at.Index(i).Child("intent"))...)
	}
	return errs
}

// active returns the index of the active responder, or -1 if there is none.
func active(list []lifecyclev1alpha1.TargetResponder) int {
	for i, r := range list {
		if r.State == lifecyclev1alpha1.ResponderStateActive {
			return i
		}
	}
	return -1
}
