package resource

import (
	"context"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/volumesources"
	"github.com/kinproc/kinproc/chain/kind"
)

// DeviceTaintRules declares devicetaintrules (KEP-5055). Kubernetes 1.37, which introduces v1,
// still stores them as v1beta2.
func DeviceTaintRules() *kind.Kind[*resourcev1beta2.DeviceTaintRule] {
	type T = *resourcev1beta2.DeviceTaintRule
	return &kind.Kind[T]{
		Plural:        "devicetaintrules",
		ClusterScoped: true,
		Versions: []kind.Version{
			kind.ServedAsSame[*resourcev1.DeviceTaintRule, T](),
			kind.ServedAsSame[*resourcev1alpha3.DeviceTaintRule, T](),
		},
		Default: func(r T) {
			if t := &r.Spec.Taint; t.TimeAdded == nil {
				t.TimeAdded = &metav1.Time{Time: time.Now().Truncate(time.Second)}
			}
		},
		// TimeAdded belongs to the effect. If a client changes the effect but not the time, the
		// time is set to now.
		PrepareUpdate: func(_ context.Context, r, old T) {
			if t, was := &r.Spec.Taint, &old.Spec.Taint; t.Effect != was.Effect &&
				t.TimeAdded.Equal(was.TimeAdded) {
				t.TimeAdded = &metav1.Time{Time: time.Now().Truncate(time.Second)}
			}
		},
		Validate: func(_ context.Context, r T) field.ErrorList {
			return validateTaintRule(&r.Spec, nil)
		},
		ValidateUpdate: func(_ context.Context, r, old T) field.ErrorList {
			return validateTaintRule(&r.Spec, &old.Spec)
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Key", Description: "Key of the taint."},
				{Name: "Value", Description: "Value of the taint."},
				{Name: "Effect", Description: "What the taint does to pods that do not tolerate it."},
				{Name: "TimeAdded", Description: "Time since the effect was set."},
				kind.AgeColumn(),
			},
			Row: func(r T) []any {
				t := r.Spec.Taint
				return []any{r.Name, t.Key, t.Value, string(t.Effect), kind.Since(t.TimeAdded), kind.Age(r)}
			},
		},
		Status: &kind.Status[T]{
			Prepare:     func(_ context.Context, r, old T) { metav1.ResetObjectMetaForStatus(r, old) },
			ResetFields: []string{"metadata", "spec"},
			Validate: func(_ context.Context, r, _ T) field.ErrorList {
				at := field.NewPath("status", "conditions")
				errs := metavalidation.ValidateConditions(r.Status.Conditions, at)
				if limit :=
					resourcev1beta2.DeviceTaintRuleStatusMaxConditions; len(r.Status.Conditions) > limit {
					errs = append(errs, field.TooMany(at, len(r.Status.Conditions), limit))
				}
				return errs
			},
		},
		Generation:             true,
		RequireResourceVersion: true,
		Quirks: kind.Quirks{
			NoStatusTable:         true,
			UnconditionalVersions: []string{"v1beta2", "v1alpha3"},
			ReturnDeleted:         true,
		},
	}
}

// validateTaintRule checks spec; old is nil for a new rule. An unchanged effect is not checked
// again.
func validateTaintRule(spec, old *resourcev1beta2.DeviceTaintRuleSpec) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("spec")
	if s := spec.DeviceSelector; s != nil {
		at := at.Child("deviceSelector")
		if s.Driver != nil {
			errs = append(errs, volumesources.ValidateCSIDriverName(*s.Driver, at.Child("driver"))...)
		}
		if s.Pool != nil {
			errs = append(errs, poolName(*s.Pool, at.Child("pool"))...)
		}
		if s.Device != nil {
			errs = append(errs, label(*s.Device, at.Child("device"))...)
		}
	}
	t := spec.Taint
	errs = append(errs, validateTaint(t.Key, t.Value, at.Child("taint"))...)
	if old == nil || old.Taint.Effect != t.Effect {
		errs = append(errs, validateEffect(resourcev1.DeviceTaintEffect(t.Effect),
			at.Child("taint", "effect"))...)
	}
	return errs
}
