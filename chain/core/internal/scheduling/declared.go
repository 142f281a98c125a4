package scheduling

import (
	"context"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
)

// declared checks a spec with the generated validation of k8s.io/api; old is nil on create. The
// generated validation exists only for v1alpha3, which has the same fields as v1beta1. Rules that
// are still alpha are not enforced.
func declared[T any](
	ctx context.Context,
	check func(context.Context, operation.Operation, *field.Path, *T, *T) field.ErrorList,
	spec, old *T,
) field.ErrorList {
	op := operation.Operation{Type: operation.Create, Options: map[string]bool{
		"CompositePodGroup":               true,
		"PodGroupPreemptionPolicy":        false,
		"TopologyAwareWorkloadScheduling": false,
	}}
	if old != nil {
		op.Type = operation.Update
	}
	return validate.FilterEnforcedDeclarativeErrors(ctx,
		check(ctx, op, field.NewPath("spec"), spec, old), true)
}

// workloadSpec and podGroupSpec return the spec as v1alpha3, for declared.
func workloadSpec(w kind.Object) *schedulingv1alpha3.WorkloadSpec {
	return &kind.As[*schedulingv1alpha3.Workload](w).Spec
}

func podGroupSpec(g kind.Object) *schedulingv1alpha3.PodGroupSpec {
	return &kind.As[*schedulingv1alpha3.PodGroup](g).Spec
}
