package horizontalpodautoscalers

import (
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// history is what was recommended and done about an autoscaler.
type history struct {
	uid             types.UID       // of the autoscaler
	selector        labels.Selector // of the target, or nil; guarded by the mu of the run
	recommendations []dated
	changes         []dated // of the number of replicas
}

type dated struct {
	at time.Time
	n  int32
}

// longest is the longest time that a stabilization window or the period of a policy may have.
const longest = time.Hour

// begin takes the current number of replicas for the first recommendation, and forgets old ones.
func (h *history) begin(current int32, now time.Time) {
	old := func(d dated) bool { return now.Sub(d.at) > longest }
	h.recommendations = slices.DeleteFunc(h.recommendations, old)
	h.changes = slices.DeleteFunc(h.changes, old)
	if len(h.recommendations) == 0 {
		h.recommendations = append(h.recommendations, dated{now, current})
	}
}

func (h *history) scaled(by int32, now time.Time) { h.changes = append(h.changes, dated{now, by}) }

// changed returns the sum of the changes within a period.
func (h *history) changed(period time.Duration, now time.Time) int64 {
	sum := int64(0)
	for _, c := range h.changes {
		if now.Sub(c.at) < period {
			sum += int64(c.n)
		}
	}
	return sum
}

// rules returns the rules of a direction, with the defaults of the API.
func (a *autoscaler) rules(up bool) autoscalingv2.HPAScalingRules {
	rules := autoscalingv2.HPAScalingRules{
		StabilizationWindowSeconds: new(int32(300)),
		SelectPolicy:               new(autoscalingv2.MaxChangePolicySelect),
		Policies: []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
		},
	}
	if up {
		rules.StabilizationWindowSeconds = new(int32(0))
		rules.Policies = append(rules.Policies, autoscalingv2.HPAScalingPolicy{
			Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15,
		})
	}
	if a.Spec.Behavior == nil {
		return rules
	}
	set := a.Spec.Behavior.ScaleDown
	if up {
		set = a.Spec.Behavior.ScaleUp
	}
	if set == nil {
		return rules
	}
	if set.StabilizationWindowSeconds != nil {
		rules.StabilizationWindowSeconds = set.StabilizationWindowSeconds
	}
	if set.SelectPolicy != nil {
		rules.SelectPolicy = set.SelectPolicy
	}
	if len(set.Policies) > 0 {
		rules.Policies = set.Policies
	}
	rules.Tolerance = set.Tolerance
	return rules
}

// normalize applies the behavior and the bounds of the autoscaler to a number of replicas.
func (a *autoscaler) normalize(current, proposed, least int32) int32 {
	up, down := a.rules(true), a.rules(false)
	stable := a.stabilize(current, proposed, &up, &down)
	switch {
	case stable > proposed:
		a.condition(autoscalingv2.AbleToScale, corev1.ConditionTrue, "ScaleDownStabilized",
			"recent recommendations were higher than current one, applying the highest recent "+
				"recommendation")
	case stable < proposed:
		a.condition(autoscalingv2.AbleToScale, corev1.ConditionTrue, "ScaleUpStabilized",
			"recent recommendations were lower than current one, applying the lowest recent "+
				"recommendation")
	default:
		a.condition(autoscalingv2.AbleToScale, corev1.ConditionTrue, "ReadyForNewScale",
			"recommended size matches current size")
	}
	limited := func(reason, message string, n int32) int32 {
		a.condition(autoscalingv2.ScalingLimited, corev1.ConditionTrue, reason, "%s", message)
		return n
	}
	switch {
	case stable > current:
		limit := max(a.limit(current, true, &up), current)
		if stable > min(limit, a.Spec.MaxReplicas) {
			if limit < a.Spec.MaxReplicas {
				return limited("ScaleUpLimit",
					"the desired replica count is increasing faster than the maximum scale rate", limit)
			}
			return limited("TooManyReplicas",
				"the desired replica count is more than the maximum replica count", a.Spec.MaxReplicas)
		}
	case stable < current:
		limit := min(a.limit(current, false, &down), current)
		if stable < max(limit, least) {
			if limit > least {
				return limited("ScaleDownLimit",
					"the desired replica count is decreasing faster than the maximum scale rate", limit)
			}
			return limited("TooFewReplicas",
				"the desired replica count is less than the minimum replica count", least)
		}
	}
	a.condition(autoscalingv2.ScalingLimited, corev1.ConditionFalse, "DesiredWithinRange",
		"the desired count is within the acceptable range")
	return stable
}

// stabilize returns the number of replicas between the lowest recommendation of the window of
// scaling up and the highest one of the window of scaling down that is nearest to the current
// number.
func (a *autoscaler) stabilize(
	current, proposed int32, up, down *autoscalingv2.HPAScalingRules,
) int32 {
	lowest, highest := proposed, proposed
	within := func(d dated, r *autoscalingv2.HPAScalingRules) bool {
		window := time.Duration(ptr.Deref(r.StabilizationWindowSeconds, 0)) * time.Second
		return a.now.Sub(d.at) < window
	}
	for _, d := range a.history.recommendations {
		if within(d, up) {
			lowest = min(lowest, d.n)
		}
		if within(d, down) {
			highest = max(highest, d.n)
		}
	}
	a.history.recommendations = append(a.history.recommendations, dated{a.now, proposed})
	return min(max(current, lowest), highest)
}

// limit returns how many replicas the policies of a direction allow. Without a behavior, the limit
// of scaling up is the older one, which does not depend on earlier changes.
func (a *autoscaler) limit(current int32, up bool, rules *autoscalingv2.HPAScalingRules) int32 {
	if up && a.Spec.Behavior == nil {
		return ceil(max(2*float64(current), 4))
	}
	var limits []int32
	for _, p := range rules.Policies {
		start := int64(current) - a.history.changed(time.Duration(p.PeriodSeconds)*time.Second, a.now)
		switch {
		case p.Type == autoscalingv2.PodsScalingPolicy && up:
			limits = append(limits, ceil(float64(start)+float64(p.Value)))
		case p.Type == autoscalingv2.PodsScalingPolicy:
			limits = append(limits, ceil(float64(start)-float64(p.Value)))
		case up:
			limits = append(limits, ceil(float64(start)*(1+float64(p.Value)/100)))
		default:
			limits = append(limits, ceil(math.Trunc(float64(start)*(1-float64(p.Value)/100))))
		}
	}
	selected := ptr.Deref(rules.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	switch {
	case selected == autoscalingv2.DisabledPolicySelect || len(limits) == 0:
		return current
	case (selected == autoscalingv2.MaxChangePolicySelect) == up:
		return slices.Max(limits)
	default:
		return slices.Min(limits)
	}
}
