package scheduling

import (
	"context"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
)

// CompositePodGroups declares compositepodgroups.
func CompositePodGroups() *kind.Kind[*schedulingv1alpha3.CompositePodGroup] {
	type T = *schedulingv1alpha3.CompositePodGroup
	return &kind.Kind[T]{
		Plural: "compositepodgroups",
		Default: func(g T) {
			if g.Spec.DisruptionMode == nil {
				g.Spec.DisruptionMode = &schedulingv1alpha3.CompositeDisruptionMode{
					Single: &schedulingv1alpha3.SingleCompositeDisruptionMode{},
				}
			}
		},
		PrepareCreate: func(_ context.Context, g T) { g.Spec.PreemptionPolicy = nil },
		PrepareUpdate: func(_ context.Context, g, old T) {
			if old.Spec.PreemptionPolicy == nil {
				g.Spec.PreemptionPolicy = nil
			}
		},
		Validate: func(ctx context.Context, g T) field.ErrorList {
			return declared(ctx, schedulingv1alpha3.Validate_CompositePodGroupSpec, &g.Spec, nil)
		},
		ValidateUpdate: func(ctx context.Context, g, old T) field.ErrorList {
			return declared(ctx, schedulingv1alpha3.Validate_CompositePodGroupSpec, &g.Spec, &old.Spec)
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{kind.NameColumn(), kind.AgeColumn()},
			Row:     func(g T) []any { return []any{g.Name, kind.Age(g)} },
		},
		Status: &kind.Status[T]{
			Prepare:     func(_ context.Context, g, old T) { metav1.ResetObjectMetaForStatus(g, old) },
			ResetFields: []string{"metadata", "spec"},
			Validate: func(_ context.Context, g, _ T) field.ErrorList {
				return metavalidation.ValidateConditions(g.Status.Conditions,
					field.NewPath("status", "conditions"))
			},
		},
		RequireResourceVersion: true,
	}
}
