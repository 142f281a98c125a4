package policy

import (
	"context"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/workloads"
	"github.com/kinproc/kinproc/chain/kind"
)

// PodDisruptionBudgets declares poddisruptionbudgets.
func PodDisruptionBudgets() *kind.Kind[*policyv1.PodDisruptionBudget] {
	return &kind.Kind[*policyv1.PodDisruptionBudget]{
		Plural:     "poddisruptionbudgets",
		ShortNames: []string{"pdb"},
		Name:       path.ValidatePathSegmentName,
		Validate: func(_ context.Context, b *policyv1.PodDisruptionBudget) field.ErrorList {
			return validateSpec(&b.Spec, nil)
		},
		ValidateUpdate: func(_ context.Context, b, old *policyv1.PodDisruptionBudget) field.ErrorList {
			return validateSpec(&b.Spec, old.Spec.Selector)
		},
		Table: kind.Table[*policyv1.PodDisruptionBudget]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Min Available", Description: "Pods that have to stay available."},
				{Name: "Max Unavailable", Description: "Pods that may be unavailable."},
				{Name: "Allowed Disruptions", Type: "integer", Description: "Pods that may be evicted now."},
				kind.AgeColumn(),
			},
			Row: func(b *policyv1.PodDisruptionBudget) []any {
				return []any{
					b.Name, limitCell(b.Spec.MinAvailable), limitCell(b.Spec.MaxUnavailable),
					int64(b.Status.DisruptionsAllowed), kind.Age(b),
				}
			},
		},
		Status: &kind.Status[*policyv1.PodDisruptionBudget]{
			Validate: func(_ context.Context, b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
				at := field.NewPath("status")
				errs := metav1validation.ValidateConditions(b.Status.Conditions, at.Child("conditions"))
				return append(errs, workloads.ValidateCounters(at,
					workloads.Counter{Field: "disruptionsAllowed", Value: int64(b.Status.DisruptionsAllowed)},
					workloads.Counter{Field: "currentHealthy", Value: int64(b.Status.CurrentHealthy)},
					workloads.Counter{Field: "desiredHealthy", Value: int64(b.Status.DesiredHealthy)},
					workloads.Counter{Field: "expectedPods", Value: int64(b.Status.ExpectedPods)})...)
			},
		},
		Generation:             true,
		RequireResourceVersion: true,
		Quirks:                 kind.Quirks{AnyFinalizers: true, LooseMetadata: true},
	}
}

func limitCell(v *intstr.IntOrString) string {
	if v == nil {
		return "N/A"
	}
	return v.String()
}

func validateSpec(
	spec *policyv1.PodDisruptionBudgetSpec, oldSelector *metav1.LabelSelector,
) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("spec")
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(at, spec,
			"minAvailable and maxUnavailable cannot be both set"))
	}
	if spec.MinAvailable != nil {
		errs = append(errs, workloads.ValidateIntOrPercent(*spec.MinAvailable,
			at.Child("minAvailable"))...)
	}
	if spec.MaxUnavailable != nil {
		errs = append(errs, workloads.ValidateIntOrPercent(*spec.MaxUnavailable,
			at.Child("maxUnavailable"))...)
	}
	opts := metav1validation.LabelSelectorValidationOptions{
		AllowInvalidLabelValueInSelector: metav1validation.LabelSelectorHasInvalidLabelValue(oldSelector),
	}
	errs = append(errs, metav1validation.ValidateLabelSelector(spec.Selector, opts,
		at.Child("selector"))...)
	if p := spec.UnhealthyPodEvictionPolicy; p != nil && *p != policyv1.IfHealthyBudget &&
		*p != policyv1.AlwaysAllow {
		errs = append(errs, field.NotSupported(at.Child("unhealthyPodEvictionPolicy"), *p,
			[]policyv1.UnhealthyPodEvictionPolicyType{policyv1.AlwaysAllow, policyv1.IfHealthyBudget}))
	}
	return errs
}
