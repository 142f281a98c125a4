package scheduler

import (
	"math"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// The weights of the scores in the default configuration of kube-scheduler. Those of resources,
// volumes and images are 1.
const (
	taintWeight    = 3
	nodeWeight     = 2
	spreadingScore = 2
	affinityWeight = 2
	devicesWeight  = 2

	maxScore = 100
)

// best returns the best of the nodes that the pod can go to. It returns any of several best ones.
func (a *attempt) best(nodes []*node) *node {
	if len(nodes) == 1 {
		return nodes[0]
	}
	totals := make([]int64, len(nodes))
	addScores := func(weight int64, scores []int64) {
		for i, score := range scores {
			totals[i] += weight * score
		}
	}
	for i, n := range nodes {
		totals[i] = a.leastAllocated(n) + a.balanced(n)
	}
	addScores(taintWeight, a.taintScores(nodes))
	if a.preferredNodes != nil {
		scores := make([]int64, len(nodes))
		for i, n := range nodes {
			scores[i] = a.preferredNodes.Score(n.Node)
		}
		addScores(nodeWeight, scaled(scores))
	}
	addScores(spreadingScore, inverted(a.scoreSpread(nodes)))
	addScores(affinityWeight, a.affinityScores(nodes))
	addScores(1, a.volumeScores(nodes))
	addScores(1, a.imageScores(nodes))
	addScores(devicesWeight, a.deviceScores(nodes))
	winner, ties := 0, 1
	for i := 1; i < len(totals); i++ {
		switch {
		case totals[i] > totals[winner]:
			winner, ties = i, 1
		case totals[i] == totals[winner]:
			if ties++; rand.IntN(ties) == 0 {
				winner = i
			}
		}
	}
	return nodes[winner]
}

// leastAllocated prefers nodes with much of their CPU and memory left.
func (a *attempt) leastAllocated(n *node) int64 {
	left := func(total, used int64) int64 {
		if total == 0 || used > total {
			return 0
		}
		return (total - used) * maxScore / total
	}
	return (left(n.allocatable.milliCPU, n.scored.milliCPU+a.scored.milliCPU) +
		left(n.allocatable.memory, n.scored.memory+a.scored.memory)) / 2
}

// balanced prefers nodes where the pod makes the parts of their CPU and memory in use more alike.
func (a *attempt) balanced(n *node) int64 {
	if a.requests.milliCPU == 0 && a.requests.memory == 0 {
		return 0
	}
	before := balance(n, n.requested.milliCPU, n.requested.memory)
	after := balance(n, n.requested.milliCPU+a.requests.milliCPU, n.requested.memory+a.requests.memory)
	return maxScore/2 + (maxScore/2+after-before)/2
}

func balance(n *node, cpu, memory int64) int64 {
	if n.allocatable.milliCPU == 0 || n.allocatable.memory == 0 {
		return maxScore // there is nothing to compare
	}
	part := func(total, used int64) float64 { return min(float64(used)/float64(total), 1) }
	difference := part(n.allocatable.milliCPU, cpu) - part(n.allocatable.memory, memory)
	return int64((1 - math.Abs(difference)/2) * maxScore)
}

// tolerates reports whether the pod tolerates the taints that keep pods from a node.
func (a *attempt) tolerates(n *node) bool {
	return !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !a.toleratesTaint(&t)
	})
}

func (a *attempt) toleratesTaint(t *corev1.Taint) bool {
	return corev1helpers.TolerationsTolerateTaint(klog.Background(),
		a.Spec.Tolerations, t, false)
}

// taintScores prefers nodes with few taints that the pod should rather avoid.
func (a *attempt) taintScores(nodes []*node) []int64 {
	var scores []float64
	for i, n := range nodes {
		for j := range n.Spec.Taints {
			t := &n.Spec.Taints[j]
			if t.Effect == corev1.TaintEffectPreferNoSchedule && !a.toleratesTaint(t) {
				if scores == nil {
					scores = make([]float64, len(nodes))
				}
				scores[i]++
			}
		}
	}
	if scores == nil {
		return nil // the same score for all nodes
	}
	most := slices.Max(scores)
	result := make([]int64, len(nodes))
	for i, score := range scores {
		result[i] = int64(maxScore - maxScore*score/most)
	}
	return result
}

func (a *attempt) affinityScores(nodes []*node) []int64 {
	weights := a.scoreAffinity()
	if len(weights) == 0 {
		return nil
	}
	keys := map[string]bool{}
	for d := range weights {
		keys[d.key] = true
	}
	scores := make([]int64, len(nodes))
	for i, n := range nodes {
		for key := range keys {
			if value, ok := n.Labels[key]; ok {
				scores[i] += weights[domain{key, value}]
			}
		}
	}
	least := slices.Min(scores)
	for i := range scores {
		scores[i] -= least
	}
	return scaled(scores)
}

// scaled makes the highest score maxScore.
func scaled(scores []int64) []int64 {
	if most := slices.Max(scores); most > 0 {
		for i := range scores {
			scores[i] = scores[i] * maxScore / most
		}
	}
	return scores
}

// inverted turns scores of which the lowest is best into scores up to maxScore. Negative scores
// stand for the worst.
func inverted(scores []float64) []int64 {
	if scores == nil {
		return nil
	}
	least, most := math.Inf(1), 0.0
	for _, score := range scores {
		if score >= 0 {
			least, most = min(least, score), max(most, score)
		}
	}
	result := make([]int64, len(scores))
	for i, score := range scores {
		switch {
		case score < 0:
		case most == 0:
			result[i] = maxScore
		default:
			result[i] = int64(maxScore * (most + least - score) / most)
		}
	}
	return result
}
