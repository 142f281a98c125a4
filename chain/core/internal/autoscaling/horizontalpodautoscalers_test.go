package autoscaling

import (
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func autoscaler(
	change func(*autoscalingv2.HorizontalPodAutoscaler),
) *autoscalingv2.HorizontalPodAutoscaler {
	a := &autoscalingv2.HorizontalPodAutoscaler{}
	a.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{
		APIVersion: "apps/v1",
		Kind:       "Deployment",
		Name:       "d",
	}
	a.Spec.MaxReplicas = 5
	if change != nil {
		change(a)
	}
	setDefaults(a)
	return a
}

func quantity(s string) *resource.Quantity { return new(resource.MustParse(s)) }

func TestValidation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*autoscalingv2.HorizontalPodAutoscaler)
		want   []string
	}{
		"valid": {nil, nil},
		"target without group": {
			func(a *autoscalingv2.HorizontalPodAutoscaler) { a.Spec.ScaleTargetRef.APIVersion = "v1" },
			[]string{"spec.scaleTargetRef.apiVersion Invalid"},
		},
		"replication controller": {func(a *autoscalingv2.HorizontalPodAutoscaler) {
			a.Spec.ScaleTargetRef.APIVersion, a.Spec.ScaleTargetRef.Kind = "v1", "ReplicationController"
		}, nil},
		"no replicas": {
			func(a *autoscalingv2.HorizontalPodAutoscaler) { a.Spec.MinReplicas = new(int32(0)) },
			[]string{"spec.metrics Forbidden"},
		},
		"external, twice": {func(a *autoscalingv2.HorizontalPodAutoscaler) {
			a.Spec.Metrics = []autoscalingv2.MetricSpec{
				{Type: "External", External: &autoscalingv2.ExternalMetricSource{
					Target: autoscalingv2.MetricTarget{
						Type:         "Value",
						Value:        quantity("1"),
						AverageValue: quantity("-1"),
					}}},
			}
		}, []string{
			"spec.metrics[0].external.metric.name Required",
			"spec.metrics[0].external.target.averageValue Invalid",
			"spec.metrics[0].external.target.value Forbidden",
		}},
		"container resource": {func(a *autoscalingv2.HorizontalPodAutoscaler) {
			a.Spec.Metrics = []autoscalingv2.MetricSpec{
				{Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
					Name:      "disk",
					Container: "C",
					Target: autoscalingv2.MetricTarget{
						Type:               "Utilization",
						AverageUtilization: new(int32(5)),
					}}},
			}
		}, []string{
			"spec.metrics[0].containerResource.container Invalid",
			"spec.metrics[0].containerResource.name Invalid",
		}},
		"pods, below zero": {func(a *autoscalingv2.HorizontalPodAutoscaler) {
			a.Spec.Metrics = []autoscalingv2.MetricSpec{{
				Type: "Pods",
				Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "m"},
					Target: autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: quantity("-1")}},
			}}
		}, []string{"spec.metrics[0].pods.target.averageValue Invalid"}},
		"type without source": {func(a *autoscalingv2.HorizontalPodAutoscaler) {
			a.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: "Object"}}
		},
			[]string{"spec.metrics[0].object Required"}},
		"behavior": {func(a *autoscalingv2.HorizontalPodAutoscaler) {
			a.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleUp: &autoscalingv2.HPAScalingRules{
					StabilizationWindowSeconds: new(int32(3601)),
					SelectPolicy:               new(autoscalingv2.ScalingPolicySelect("Best")),
					Tolerance:                  quantity("-0.1"),
					Policies: []autoscalingv2.HPAScalingPolicy{
						{Type: "Pods", PeriodSeconds: 1801},
					},
				},
			}
		}, []string{
			"spec.behavior.scaleUp.policies[0].periodSeconds Invalid",
			"spec.behavior.scaleUp.policies[0].value Invalid",
			"spec.behavior.scaleUp.selectPolicy NotSupported",
			"spec.behavior.scaleUp.stabilizationWindowSeconds Invalid",
			"spec.behavior.scaleUp.tolerance Invalid",
		}},
	} {
		got := kindtest.Causes(validate(autoscaler(c.change), nil))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestV1KeepsEverything checks that what v1 has no fields for survives in annotations, which v2
// never shows.
func TestV1KeepsEverything(t *testing.T) {
	t.Parallel()
	in := autoscaler(func(a *autoscalingv2.HorizontalPodAutoscaler) {
		a.Annotations = map[string]string{"a": "b"}
		object := autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: "s"}
		a.Spec.Metrics = []autoscalingv2.MetricSpec{
			{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{
				DescribedObject: object,
				Metric:          autoscalingv2.MetricIdentifier{Name: "m"},
				Target:          autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: quantity("2")},
			}},
			{
				Type: "Pods",
				Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "m"},
					Target: autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: quantity("3")}},
			},
			{
				Type: "External",
				External: &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "m"},
					Target: autoscalingv2.MetricTarget{Type: "Value", Value: quantity("4")}},
			},
			cpuMetric(50),
		}
		a.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(60))},
		}
		a.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{
			{Type: "ScalingActive", Status: "True"},
		}
		a.Status.CurrentMetrics = []autoscalingv2.MetricStatus{
			{Type: "Resource", Resource: &autoscalingv2.ResourceMetricStatus{Name: "cpu",
				Current: autoscalingv2.MetricValueStatus{
					AverageUtilization: new(int32(40)),
					AverageValue:       quantity("5"),
				}}},
		}
	})
	v1, out := &autoscalingv1.HorizontalPodAutoscaler{}, &autoscalingv2.HorizontalPodAutoscaler{}
	if err := toV1(in, v1); err != nil {
		t.Fatal(err)
	}
	if got := v1.Spec.TargetCPUUtilizationPercentage; got == nil || *got != 50 {
		t.Errorf("target CPU utilization %v, want 50", got)
	}
	if len(v1.Annotations) != 1+len(v1Annotations()) || len(in.Annotations) != 1 {
		t.Errorf("got annotations %q in v1 and %q in v2", v1.Annotations, in.Annotations)
	}
	if err := fromV1(v1, out); err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(in, out) {
		t.Errorf("got %+v, want %+v", out, in)
	}
	if cell := targetsCell(in.Spec.Metrics, nil); !strings.HasSuffix(cell, "2 more...") {
		t.Errorf("targets %q do not show how many metrics are left out", cell)
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	pods := autoscalingv2.MetricSpec{
		Type: autoscalingv2.PodsMetricSourceType,
		Pods: &autoscalingv2.PodsMetricSource{
			Target: autoscalingv2.MetricTarget{AverageValue: quantity("10")},
		},
	}
	external := autoscalingv2.MetricSpec{
		Type: autoscalingv2.ExternalMetricSourceType,
		External: &autoscalingv2.ExternalMetricSource{
			Target: autoscalingv2.MetricTarget{AverageValue: quantity("3")},
		},
	}
	specs := []autoscalingv2.MetricSpec{pods, external}
	for want, statuses := range map[string][]autoscalingv2.MetricStatus{
		"<unknown>/10, <unknown>/3 (avg)": nil,
		"<nil>/10, <unknown>/3 (avg)": {{Pods: &autoscalingv2.PodsMetricStatus{}}, {
			External: &autoscalingv2.ExternalMetricStatus{},
		}},
	} {
		if got := targetsCell(specs, statuses); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
