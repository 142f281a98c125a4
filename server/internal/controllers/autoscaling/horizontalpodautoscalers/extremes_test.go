package horizontalpodautoscalers

import (
	"math"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// TestLimitOfExtremes scales targets that are so large that twice their size overflows an int32.
func TestLimitOfExtremes(t *testing.T) {
	t.Parallel()
	const large = math.MaxInt32 - 10
	rules := func(kind autoscalingv2.HPAScalingPolicyType) *autoscalingv2.HPAScalingRules {
		return &autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{
			{Type: kind, Value: math.MaxInt32, PeriodSeconds: 15},
		}}
	}
	pods := rules(autoscalingv2.PodsScalingPolicy)
	percent := rules(autoscalingv2.PercentScalingPolicy)
	now := time.Now()
	for name, test := range map[string]struct {
		rules   *autoscalingv2.HPAScalingRules
		up      bool
		current int32
		want    int32
	}{
		"no behavior":   {nil, true, large, math.MaxInt32},
		"up by pods":    {pods, true, large, math.MaxInt32},
		"up by percent": {percent, true, large, math.MaxInt32},
		"down by pods":  {pods, false, 10, 10 - math.MaxInt32},
		// A percentage above 100 allows everything.
		"down by percent": {percent, false, large, math.MinInt32},
	} {
		a := &autoscaler{
			HorizontalPodAutoscaler: &autoscalingv2.HorizontalPodAutoscaler{},
			history: &history{changes: []dated{
				{now, math.MaxInt32}, {now, math.MaxInt32}, {now, -math.MaxInt32}, {now, -math.MaxInt32},
			}},
			now: now,
		}
		if test.rules != nil {
			a.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{}
		}
		if got := a.limit(test.current, test.up, test.rules); got != test.want {
			t.Errorf("%s: the limit is %d, want %d", name, got, test.want)
		}
	}
}
