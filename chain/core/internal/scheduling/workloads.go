package scheduling

import (
	"context"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
)

// Workloads declares workloads.
func Workloads() *kind.Kind[*schedulingv1beta1.Workload] {
	type T = *schedulingv1beta1.Workload
	return &kind.Kind[T]{
		Plural:   "workloads",
		Versions: []kind.Version{kind.ServedAsSame[*schedulingv1alpha3.Workload, T]()},
		PrepareCreate: func(_ context.Context, w T) {
			dropDisabledTemplateFields(&w.Spec, &schedulingv1beta1.WorkloadSpec{})
		},
		PrepareUpdate: func(_ context.Context, w, old T) {
			dropDisabledTemplateFields(&w.Spec, &old.Spec)
		},
		Validate: func(ctx context.Context, w T) field.ErrorList {
			errs := declared(ctx, schedulingv1alpha3.Validate_WorkloadSpec, workloadSpec(w), nil)
			return append(errs, validateHierarchy(&w.Spec, field.NewPath("spec"))...)
		},
		ValidateUpdate: func(ctx context.Context, w, old T) field.ErrorList {
			errs := declared(ctx, schedulingv1alpha3.Validate_WorkloadSpec,
				workloadSpec(w), workloadSpec(old))
			return append(errs, validateHierarchy(&w.Spec, field.NewPath("spec"))...)
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{kind.NameColumn(), kind.AgeColumn()},
			Row:     func(w T) []any { return []any{w.Name, kind.Age(w)} },
		},
	}
}
