package autoscaling

import (
	"context"
	"fmt"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/workloads"
	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// defaultUtilization is the target CPU utilization, in percent of the CPU requests, of autoscalers
// without metrics.
const defaultUtilization = 80

// HorizontalPodAutoscalers declares horizontalpodautoscalers.
func HorizontalPodAutoscalers() *kind.Kind[*autoscalingv2.HorizontalPodAutoscaler] {
	return &kind.Kind[*autoscalingv2.HorizontalPodAutoscaler]{
		Plural:     "horizontalpodautoscalers",
		ShortNames: []string{"hpa"},
		Categories: []string{"all"},
		Versions: []kind.Version{
			kind.ServedAs(fromV1, toV1, func(a *autoscalingv1.HorizontalPodAutoscaler) {
				defaultTo(&a.Spec.MinReplicas, 1)
			}),
		},
		Default: setDefaults,
		PrepareCreate: func(_ context.Context, a *autoscalingv2.HorizontalPodAutoscaler) {
			dropTolerance(a, &autoscalingv2.HorizontalPodAutoscaler{})
			if features.Enabled(features.HPAGeneration) {
				a.Generation = 1
			}
		},
		PrepareUpdate: func(_ context.Context, a, old *autoscalingv2.HorizontalPodAutoscaler) {
			dropTolerance(a, old)
			changed := !equality.Semantic.DeepEqual(a.Spec, old.Spec)
			if changed && features.Enabled(features.HPAGeneration) {
				a.Generation = old.Generation + 1
			}
		},
		Validate: func(_ context.Context, a *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
			return validate(a, nil)
		},
		ValidateUpdate: func(
			_ context.Context, a, old *autoscalingv2.HorizontalPodAutoscaler,
		) field.ErrorList {
			return validate(a, old)
		},
		Table: kind.Table[*autoscalingv2.HorizontalPodAutoscaler]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Reference", Description: "Object that is scaled."},
				{Name: "Targets", Description: "Current and target values of the metrics."},
				{Name: "MinPods", Description: "Minimum number of replicas."},
				{Name: "MaxPods", Description: "Maximum number of replicas."},
				{Name: "Replicas", Description: "Current number of replicas."},
				kind.AgeColumn(),
			},
			Row: func(a *autoscalingv2.HorizontalPodAutoscaler) []any {
				reference := a.Spec.ScaleTargetRef.Kind + "/" + a.Spec.ScaleTargetRef.Name
				least := "<unset>"
				if a.Spec.MinReplicas != nil {
					least = fmt.Sprint(*a.Spec.MinReplicas)
				}
				return []any{a.Name, reference, targetsCell(a.Spec.Metrics, a.Status.CurrentMetrics), least,
					int64(a.Spec.MaxReplicas), int64(a.Status.CurrentReplicas), kind.Age(a)}
			},
		},
		Status: &kind.Status[*autoscalingv2.HorizontalPodAutoscaler]{
			Validate: func(_ context.Context, a, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
				return workloads.ValidateCounters(field.NewPath("status"),
					workloads.Counter{Field: "currentReplicas", Value: int64(a.Status.CurrentReplicas)},
					workloads.Counter{Field: "desiredReplicas", Value: int64(a.Status.DesiredReplicas)})
			},
		},
	}
}

// dropTolerance clears the tolerances if their feature is off, unless old has one.
func dropTolerance(a, old *autoscalingv2.HorizontalPodAutoscaler) {
	if features.Enabled(features.HPAConfigurableTolerance) {
		return
	}
	for _, r := range scalingRules(old) {
		if r.Tolerance != nil {
			return
		}
	}
	for _, r := range scalingRules(a) {
		r.Tolerance = nil
	}
}

func scalingRules(a *autoscalingv2.HorizontalPodAutoscaler) []*autoscalingv2.HPAScalingRules {
	if a.Spec.Behavior == nil {
		return nil
	}
	return slices.DeleteFunc(
		[]*autoscalingv2.HPAScalingRules{a.Spec.Behavior.ScaleUp, a.Spec.Behavior.ScaleDown},
		func(r *autoscalingv2.HPAScalingRules) bool { return r == nil })
}

func setDefaults(a *autoscalingv2.HorizontalPodAutoscaler) {
	defaultTo(&a.Spec.MinReplicas, 1)
	if len(a.Spec.Metrics) == 0 {
		a.Spec.Metrics = []autoscalingv2.MetricSpec{cpuMetric(defaultUtilization)}
	}
	behavior := a.Spec.Behavior
	if behavior == nil {
		return
	}
	// Scale up immediately and fast. Scale down as far as needed, after the controller's
	// stabilization window.
	setRuleDefaults(&behavior.ScaleUp,
		autoscalingv2.HPAScalingPolicy{
			Type:          autoscalingv2.PodsScalingPolicy,
			Value:         4,
			PeriodSeconds: 15,
		},
		autoscalingv2.HPAScalingPolicy{
			Type:          autoscalingv2.PercentScalingPolicy,
			Value:         100,
			PeriodSeconds: 15,
		})
	defaultTo(&behavior.ScaleUp.StabilizationWindowSeconds, 0)
	setRuleDefaults(&behavior.ScaleDown,
		autoscalingv2.HPAScalingPolicy{
			Type:          autoscalingv2.PercentScalingPolicy,
			Value:         100,
			PeriodSeconds: 15,
		})
}

// setRuleDefaults fills in a missing list of policies. It leaves an empty list for validation to
// reject.
func setRuleDefaults(
	r **autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy,
) {
	defaultTo(r, autoscalingv2.HPAScalingRules{})
	defaultTo(&(*r).SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if (*r).Policies == nil {
		(*r).Policies = policies
	}
}

func cpuMetric(utilization int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{
				Type:               autoscalingv2.UtilizationMetricType,
				AverageUtilization: &utilization,
			},
		},
	}
}

// defaultTo points *p to value if *p is nil.
func defaultTo[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}
