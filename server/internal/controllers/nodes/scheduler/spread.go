package scheduler

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// constraint is a topology spread constraint.
type constraint struct {
	selector   labels.Selector
	key        string
	maxSkew    int
	minDomains int
	hard       bool
	// honorAffinity and honorTaints leave out the nodes that the pod cannot go to.
	honorAffinity, honorTaints bool
}

func newConstraint(p *corev1.Pod, c *corev1.TopologySpreadConstraint) constraint {
	parsed := constraint{
		selector:   selector(c.LabelSelector),
		key:        c.TopologyKey,
		maxSkew:    int(c.MaxSkew),
		minDomains: int(ptr.Deref(c.MinDomains, 1)),
		hard:       c.WhenUnsatisfiable == corev1.DoNotSchedule,
		honorAffinity: ptr.Deref(c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor) ==
			corev1.NodeInclusionPolicyHonor,
		honorTaints: ptr.Deref(c.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore) ==
			corev1.NodeInclusionPolicyHonor,
	}
	// The API server adds matchLabelKeys to the selector.
	return parsed
}

// domainCounts are the pods that a constraint selects, by the value of its key.
type domainCounts struct {
	pods  map[string]int
	least int
	self  int // 1 if the constraint selects the pod itself
}

// includes reports whether a constraint takes a node into account. The node has all keys.
func (a *attempt) includes(c *constraint, n *node) bool {
	if c.honorAffinity {
		if match, _ := a.nodes.Match(n.Node); !match {
			return false
		}
	}
	return !c.honorTaints || a.tolerates(n)
}

func hasKeys(constraints []constraint, n *node) bool {
	for i := range constraints {
		if _, ok := n.Labels[constraints[i].key]; !ok {
			return false
		}
	}
	return true
}

// countSpread counts the pods that each of the constraints selects, on the nodes that have the keys
// of all constraints.
func (a *attempt) countSpread(constraints []constraint) []domainCounts {
	counts := make([]domainCounts, len(constraints))
	for i := range constraints {
		counts[i].pods = map[string]int{}
		if constraints[i].selector.Matches(labels.Set(a.Labels)) {
			counts[i].self = 1
		}
	}
	for _, n := range a.cluster.order {
		if !hasKeys(constraints, n) {
			continue
		}
		for i := range constraints {
			c := &constraints[i]
			if !a.includes(c, n) {
				continue
			}
			selected := 0
			for _, p := range n.pods {
				if a.counted(c, p) {
					selected++
				}
			}
			counts[i].pods[n.Labels[c.key]] += selected
		}
	}
	return counts
}

// counted reports whether a constraint counts a pod on a node that it includes.
func (a *attempt) counted(c *constraint, p *placed) bool {
	return p.Namespace == a.Namespace && p.DeletionTimestamp == nil &&
		c.selector.Matches(labels.Set(p.Labels))
}

func (a *attempt) prepareSpread() {
	a.counts = nil
	if len(a.spread) == 0 {
		return
	}
	a.counts = a.countSpread(a.spread)
	a.countLeast()
}

// spreadChanged changes the counts for a pod that has come to its node or has left it.
func (a *attempt) spreadChanged(p *placed, by int) {
	if len(a.spread) == 0 || !hasKeys(a.spread, p.node) {
		return
	}
	for i := range a.spread {
		if c := &a.spread[i]; a.includes(c, p.node) && a.counted(c, p) {
			a.counts[i].pods[p.node.Labels[c.key]] += by
		}
	}
	a.countLeast()
}

// countLeast works out the least numbers of pods in a domain.
func (a *attempt) countLeast() {
	for i := range a.counts {
		c := &a.counts[i]
		c.least = math.MaxInt
		for _, n := range c.pods {
			c.least = min(c.least, n)
		}
		if len(c.pods) < a.spread[i].minDomains {
			c.least = 0
		}
	}
}

func (a *attempt) filterSpread(n *node) verdict {
	const reason = "node(s) didn't match pod topology spread constraints"
	const helps = nodeChanged | podGone | podPlaced
	for i := range a.spread {
		c, counts := &a.spread[i], &a.counts[i]
		value, ok := n.Labels[c.key]
		if !ok {
			return verdict{reason: reason + " (missing required label)", final: true, helps: helps}
		}
		if counts.least == math.MaxInt {
			continue // no node counts
		}
		if counts.pods[value]+counts.self-counts.least > c.maxSkew {
			return verdict{reason: reason, helps: helps}
		}
	}
	return verdict{}
}

// scoreSpread returns the scores of nodes by the constraints that need not be satisfied. Low is
// good. A negative score stands for a node that lacks a key.
func (a *attempt) scoreSpread(nodes []*node) []float64 {
	if len(a.spreadSoft) == 0 {
		return a.scoreOwned(nodes)
	}
	counts := a.countSpread(a.spreadSoft)
	weights := make([]float64, len(counts))
	for i := range counts {
		domains := map[string]bool{}
		for _, n := range nodes {
			if hasKeys(a.spreadSoft, n) {
				domains[n.Labels[a.spreadSoft[i].key]] = true
			}
		}
		weights[i] = spreadWeight(len(domains))
	}
	scores := make([]float64, len(nodes))
	for i, n := range nodes {
		if !hasKeys(a.spreadSoft, n) {
			scores[i] = -1
			continue
		}
		for j := range a.spreadSoft {
			c := &a.spreadSoft[j]
			scores[i] += spreadScore(counts[j].pods[n.Labels[c.key]], c.maxSkew, weights[j])
		}
	}
	return scores
}

func spreadWeight(domains int) float64 { return math.Log(float64(domains + 2)) }

func spreadScore(pods, maxSkew int, weight float64) float64 {
	return float64(pods)*weight + float64(maxSkew-1)
}

// scoreOwned scores nodes by the pods of the same owner, for pods without constraints.
// kube-scheduler uses the selectors of services and of the owner.
func (a *attempt) scoreOwned(nodes []*node) []float64 {
	const hostSkew, zoneSkew = 3, 5 // those of kube-scheduler
	if a.owner == "" || len(a.spread) > 0 {
		return nil
	}
	zones := map[string]bool{}
	for _, n := range nodes {
		if n.zone != "" {
			zones[n.zone] = true
		}
	}
	hostWeight, zoneWeight := spreadWeight(len(nodes)), spreadWeight(len(zones))
	scores := make([]float64, len(nodes))
	for i, n := range nodes {
		scores[i] = spreadScore(n.owners[a.owner], hostSkew, hostWeight)
		if n.zone != "" {
			scores[i] += spreadScore(a.cluster.owned[ownedInZone{a.owner, n.zone}], zoneSkew, zoneWeight)
		}
	}
	return scores
}
