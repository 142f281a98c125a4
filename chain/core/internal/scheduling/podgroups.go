package scheduling

import (
	"context"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
)

// PodGroups declares podgroups.
func PodGroups() *kind.Kind[*schedulingv1beta1.PodGroup] {
	type T = *schedulingv1beta1.PodGroup
	return &kind.Kind[T]{
		Plural:   "podgroups",
		Versions: []kind.Version{kind.ServedAsSame[*schedulingv1alpha3.PodGroup, T]()},
		Default: func(g T) {
			if g.Spec.DisruptionMode == nil {
				g.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{
					Single: &schedulingv1beta1.SingleDisruptionMode{},
				}
			}
		},
		PrepareCreate: func(_ context.Context, g T) {
			dropDisabledGroupFields(&g.Spec, &schedulingv1beta1.PodGroupSpec{})
		},
		PrepareUpdate: func(_ context.Context, g, old T) { dropDisabledGroupFields(&g.Spec, &old.Spec) },
		Validate: func(ctx context.Context, g T) field.ErrorList {
			return declared(ctx, schedulingv1alpha3.Validate_PodGroupSpec, podGroupSpec(g), nil)
		},
		ValidateUpdate: func(ctx context.Context, g, old T) field.ErrorList {
			return declared(ctx, schedulingv1alpha3.Validate_PodGroupSpec,
				podGroupSpec(g), podGroupSpec(old))
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Policy", Description: "How the pods of the group are scheduled."},
				{Name: "Workload", Description: "Workload from whose template the group was created."},
				{Name: "Status", Description: "Whether the group was scheduled."},
				kind.AgeColumn(),
			},
			Row: func(g T) []any {
				how, workload := "Basic", "<none>"
				if g.Spec.SchedulingPolicy.Gang != nil {
					how = "Gang"
				}
				if r := g.Spec.WorkloadRef; r != nil {
					workload = r.WorkloadName
				}
				return []any{
					g.Name, how, workload,
					scheduledCell(g.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled), kind.Age(g),
				}
			},
		},
		Status: &kind.Status[T]{
			Prepare: func(_ context.Context, g, old T) {
				metav1.ResetObjectMetaForStatus(g, old)
				// belongs to a feature that is off
				g.Status.ResourceClaimStatuses = old.Status.ResourceClaimStatuses
			},
			ResetFields: []string{"metadata", "spec"},
			Validate: func(_ context.Context, g, _ T) field.ErrorList {
				return metavalidation.ValidateConditions(g.Status.Conditions,
					field.NewPath("status", "conditions"))
			},
		},
		Quirks: kind.Quirks{NoStatusTable: true},
	}
}

func scheduledCell(conditions []metav1.Condition, scheduled string) string {
	c := meta.FindStatusCondition(conditions, scheduled)
	switch {
	case c == nil:
		return "Pending"
	case c.Status == metav1.ConditionTrue:
		return "Scheduled"
	}
	return c.Reason
}

// dropDisabledGroupFields clears fields of features that are off, unless old uses them.
func dropDisabledGroupFields(s, old *schedulingv1beta1.PodGroupSpec) {
	if old.SchedulingConstraints == nil {
		s.SchedulingConstraints = nil
	}
	if len(old.ResourceClaims) == 0 {
		s.ResourceClaims = nil
	}
	if old.PreemptionPolicy == nil {
		s.PreemptionPolicy = nil
	}
}
