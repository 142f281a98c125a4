package horizontalpodautoscalers

import (
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// TestNormalize limits how fast the number of replicas changes.
func TestNormalize(t *testing.T) {
	t.Parallel()
	now := time.Now()
	policy := &autoscalingv2.HPAScalingRules{
		StabilizationWindowSeconds: new(int32(0)),
		Policies: []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 60},
		},
	}
	behavior := &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: policy, ScaleDown: policy}
	changes := []dated{
		{now.Add(-2 * time.Minute), 50}, {now.Add(-30 * time.Second), 3}, {now.Add(-time.Second), -1},
	}
	for name, test := range map[string]struct {
		behavior                *autoscalingv2.HorizontalPodAutoscalerBehavior
		changes                 []dated
		current, proposed, want int32
	}{
		"one, no behavior":   {nil, nil, 1, 30, 4},
		"three, no behavior": {nil, nil, 3, 30, 6},
		"up":                 {behavior, nil, 10, 30, 14},
		"down":               {behavior, nil, 10, 1, 6},
		"up, after changes":  {behavior, changes, 10, 30, 12},
		// 2 more than at the start of the period, so that 6 may go.
		"down, after changes": {behavior, changes, 10, 1, 4},
		"the highest":         {behavior, nil, 19, 30, 20},
		"the lowest":          {behavior, nil, 3, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &autoscaler{
				HorizontalPodAutoscaler: &autoscalingv2.HorizontalPodAutoscaler{
					Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
						MaxReplicas: 20, Behavior: test.behavior,
					},
				},
				history: &history{changes: test.changes}, now: now,
			}
			if got := a.normalize(test.current, test.proposed, 1); got != test.want {
				t.Errorf("%d replicas, want %d: %+v", got, test.want, a.Status.Conditions)
			}
		})
	}
}
