package autoscaling

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Fields of v2 that v1 lacks are kept as JSON in annotations of v1. These annotations exist in no
// other version.
const (
	metricsAnnotation        = "autoscaling.alpha.kubernetes.io/metrics"
	currentMetricsAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation     = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation       = "autoscaling.alpha.kubernetes.io/behavior"
)

func v1Annotations() []string {
	return []string{
		metricsAnnotation, currentMetricsAnnotation, conditionsAnnotation, behaviorAnnotation,
	}
}

// behaviorV1 is the JSON form of the behavior annotation: its field names are capitalized, and no
// field is omitted.
type behaviorV1 struct {
	ScaleUp, ScaleDown *rulesV1
}

type rulesV1 struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []policyV1
	Tolerance                  *resource.Quantity
}

type policyV1 struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

// fromV1 converts v1 to v2. It ignores annotations that it cannot parse.
func fromV1(
	in *autoscalingv1.HorizontalPodAutoscaler, out *autoscalingv2.HorizontalPodAutoscaler,
) error {
	out.ObjectMeta = in.ObjectMeta
	out.Annotations = withoutV1Annotations(in.Annotations)
	out.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
		MinReplicas:    in.Spec.MinReplicas,
		MaxReplicas:    in.Spec.MaxReplicas,
	}
	out.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		ObservedGeneration: in.Status.ObservedGeneration,
		LastScaleTime:      in.Status.LastScaleTime,
		CurrentReplicas:    in.Status.CurrentReplicas,
		DesiredReplicas:    in.Status.DesiredReplicas,
	}

	var metrics []autoscalingv1.MetricSpec
	if readAnnotation(in.Annotations, metricsAnnotation, &metrics) {
		out.Spec.Metrics = mapped(metrics, metricFromV1)
	}
	if target := in.Spec.TargetCPUUtilizationPercentage; target != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuMetric(*target))
	} else if len(out.Spec.Metrics) == 0 {
		// This default of v1 is set here because it depends on the metrics annotation.
		out.Spec.Metrics = append(out.Spec.Metrics, cpuMetric(defaultUtilization))
	}
	var behavior behaviorV1
	if readAnnotation(in.Annotations, behaviorAnnotation, &behavior) && behavior != (behaviorV1{}) {
		out.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp:   rulesFromV1(behavior.ScaleUp),
			ScaleDown: rulesFromV1(behavior.ScaleDown),
		}
	}

	var current []autoscalingv1.MetricStatus
	if readAnnotation(in.Annotations, currentMetricsAnnotation, &current) {
		out.Status.CurrentMetrics = mapped(current, metricStatusFromV1)
	} else if percentage := in.Status.CurrentCPUUtilizationPercentage; percentage != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{
				Name:    corev1.ResourceCPU,
				Current: autoscalingv2.MetricValueStatus{AverageUtilization: percentage},
			},
		}}
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	if readAnnotation(in.Annotations, conditionsAnnotation, &conditions) {
		out.Status.Conditions = mapped(conditions, func(
			c autoscalingv1.HorizontalPodAutoscalerCondition,
		) autoscalingv2.HorizontalPodAutoscalerCondition {
			return autoscalingv2.HorizontalPodAutoscalerCondition{
				Type:               autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type),
				Status:             c.Status,
				LastTransitionTime: c.LastTransitionTime,
				Reason:             c.Reason,
				Message:            c.Message,
				ObservedGeneration: c.ObservedGeneration,
			}
		})
	}
	return nil
}

func toV1(
	in *autoscalingv2.HorizontalPodAutoscaler, out *autoscalingv1.HorizontalPodAutoscaler,
) error {
	out.ObjectMeta = in.ObjectMeta
	out.Annotations = withoutV1Annotations(in.Annotations)
	out.Spec = autoscalingv1.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
		MinReplicas:    in.Spec.MinReplicas,
		MaxReplicas:    in.Spec.MaxReplicas,
	}
	out.Status = autoscalingv1.HorizontalPodAutoscalerStatus{
		ObservedGeneration: in.Status.ObservedGeneration,
		LastScaleTime:      in.Status.LastScaleTime,
		CurrentReplicas:    in.Status.CurrentReplicas,
		DesiredReplicas:    in.Status.DesiredReplicas,
	}
	annotations := map[string]any{}

	var others []autoscalingv1.MetricSpec
	for _, m := range in.Spec.Metrics {
		if target := cpuUtilization(m); target == nil {
			others = append(others, metricToV1(m))
		} else if out.Spec.TargetCPUUtilizationPercentage == nil {
			out.Spec.TargetCPUUtilizationPercentage = target
		}
	}
	if len(others) > 0 {
		annotations[metricsAnnotation] = others
	}
	if b := in.Spec.Behavior; b != nil {
		annotations[behaviorAnnotation] = behaviorV1{
			ScaleUp:   rulesToV1(b.ScaleUp),
			ScaleDown: rulesToV1(b.ScaleDown),
		}
	}
	for _, m := range in.Status.CurrentMetrics {
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil &&
			m.Resource.Name == corev1.ResourceCPU {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
	}
	// This list includes the CPU, because v1 has no field for its average value.
	if current := in.Status.CurrentMetrics; len(current) > 0 {
		annotations[currentMetricsAnnotation] = mapped(current, metricStatusToV1)
	}
	if conditions := in.Status.Conditions; len(conditions) > 0 {
		annotations[conditionsAnnotation] = mapped(conditions, func(
			c autoscalingv2.HorizontalPodAutoscalerCondition,
		) autoscalingv1.HorizontalPodAutoscalerCondition {
			return autoscalingv1.HorizontalPodAutoscalerCondition{
				Type:               autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type),
				Status:             c.Status,
				LastTransitionTime: c.LastTransitionTime,
				Reason:             c.Reason,
				Message:            c.Message,
				ObservedGeneration: c.ObservedGeneration,
			}
		})
	}
	return writeAnnotations(out, annotations)
}

func cpuUtilization(m autoscalingv2.MetricSpec) *int32 {
	if m.Type != autoscalingv2.ResourceMetricSourceType || m.Resource == nil ||
		m.Resource.Name != corev1.ResourceCPU {
		return nil
	}
	return m.Resource.Target.AverageUtilization
}

func readAnnotation(annotations map[string]string, key string, into any) bool {
	value, ok := annotations[key]
	return ok && json.Unmarshal([]byte(value), into) == nil
}

func writeAnnotations(out *autoscalingv1.HorizontalPodAutoscaler, values map[string]any) error {
	if len(values) == 0 {
		return nil
	}
	out.Annotations = maps.Clone(out.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	for key, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("annotation %s: %w", key, err)
		}
		out.Annotations[key] = string(text)
	}
	return nil
}

func withoutV1Annotations(annotations map[string]string) map[string]string {
	isV1 := func(key string, _ string) bool { return slices.Contains(v1Annotations(), key) }
	for key := range annotations {
		if isV1(key, "") {
			annotations = maps.Clone(annotations)
			maps.DeleteFunc(annotations, isV1)
			break
		}
	}
	return annotations
}

func rulesFromV1(in *rulesV1) *autoscalingv2.HPAScalingRules {
	if in == nil {
		return nil
	}
	return &autoscalingv2.HPAScalingRules{
		StabilizationWindowSeconds: in.StabilizationWindowSeconds,
		SelectPolicy:               in.SelectPolicy,
		Tolerance:                  in.Tolerance,
		Policies: mapped(in.Policies, func(p policyV1) autoscalingv2.HPAScalingPolicy {
			return autoscalingv2.HPAScalingPolicy(p)
		}),
	}
}

func rulesToV1(in *autoscalingv2.HPAScalingRules) *rulesV1 {
	if in == nil {
		return nil
	}
	return &rulesV1{
		StabilizationWindowSeconds: in.StabilizationWindowSeconds,
		SelectPolicy:               in.SelectPolicy,
		Tolerance:                  in.Tolerance,
		Policies: mapped(in.Policies, func(p autoscalingv2.HPAScalingPolicy) policyV1 {
			return policyV1(p)
		}),
	}
}

// mapped returns the results of calling f with each element, or nil if in is nil.
func mapped[A, B any](in []A, f func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i := range in {
		out[i] = f(in[i])
	}
	return out
}
