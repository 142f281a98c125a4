package scheduler

import (
	"k8s.io/apimachinery/pkg/labels"
)

// domain is the part of a cluster that a label with a certain value stands for.
type domain struct{ key, value string }

// affinityCounts are the pods that matter for the affinity of a pod, by domain.
type affinityCounts struct {
	near    map[domain]int // pods that all terms of the affinity select, by the key of each term
	far     map[domain]int // pods that the pod must be far from
	refused map[domain]int // pods that must be far from the pod
}

func (a *attempt) prepareAffinity() {
	a.near = affinityCounts{
		near: map[domain]int{}, far: map[domain]int{}, refused: map[domain]int{},
	}
	for _, other := range a.cluster.withAnti {
		a.countRefusing(other, +1)
	}
	if len(a.affinity)+len(a.antiAffinity) > 0 {
		for other := range a.cluster.placed() {
			a.countSelected(other, +1)
		}
	}
}

// countRefusing counts a pod that may have to be far from this one.
func (a *attempt) countRefusing(other *placed, by int) {
	for i := range other.antiAffinity {
		if t := &other.antiAffinity[i]; t.matches(a.pod, a.namespaces) {
			countBy(a.near.refused, other.node, t.topologyKey, by)
		}
	}
}

// countSelected counts a pod that this one may have to be near to or far from.
func (a *attempt) countSelected(other *placed, by int) {
	if len(a.affinity) > 0 && matchesAll(a.affinity, other.pod, a.namespaces) {
		for i := range a.affinity {
			countBy(a.near.near, other.node, a.affinity[i].topologyKey, by)
		}
	}
	for i := range a.antiAffinity {
		if t := &a.antiAffinity[i]; t.matches(other.pod, a.namespaces) {
			countBy(a.near.far, other.node, t.topologyKey, by)
		}
	}
}

// countBy changes the count of the domain of a node. A domain without pods has no count.
func countBy(counts map[domain]int, n *node, key string, by int) {
	if n.Node == nil {
		return
	}
	if value, ok := n.Labels[key]; ok {
		add(counts, domain{key, value}, by)
	}
}

func matchesAll(terms []term, p *pod, namespaces func(string) labels.Set) bool {
	for i := range terms {
		if !terms[i].matches(p, namespaces) {
			return false
		}
	}
	return true
}

// countIn adds weight to the domain of a node.
func countIn(weights map[domain]int64, n *node, key string, weight int64) {
	if n.Node == nil {
		return
	}
	if value, ok := n.Labels[key]; ok {
		weights[domain{key, value}] += weight
	}
}

func (a *attempt) filterAffinity(n *node) verdict {
	counts := &a.near
	if len(a.affinity) > 0 {
		near := true
		for i := range a.affinity {
			key := a.affinity[i].topologyKey
			value, ok := n.Labels[key]
			if !ok {
				return notNear()
			}
			near = near && counts.near[domain{key, value}] > 0
		}
		// The first of a group of pods that want to be together may go anywhere.
		first := len(counts.near) == 0 && matchesAll(a.affinity, a.pod, a.namespaces)
		if !near && !first {
			return notNear()
		}
	}
	for i := range a.antiAffinity {
		key := a.antiAffinity[i].topologyKey
		if value, ok := n.Labels[key]; ok && counts.far[domain{key, value}] > 0 {
			return verdict{
				reason: "node(s) didn't match pod anti-affinity rules",
				helps:  nodeChanged | podGone | podPlaced | namespacesChanged,
			}
		}
	}
	for d := range counts.refused {
		if value, ok := n.Labels[d.key]; ok && value == d.value {
			return verdict{
				reason: "node(s) didn't satisfy existing pods anti-affinity rules",
				helps:  nodeChanged | podGone | podPlaced | namespacesChanged,
			}
		}
	}
	return verdict{}
}

func notNear() verdict {
	return verdict{
		reason: "node(s) didn't match pod affinity rules", final: true,
		helps: nodeChanged | podGone | podPlaced | namespacesChanged,
	}
}

// hardWeight is what a required term of a pod on a node counts when a pod that it selects is
// scored.
const hardWeight = 1

// scoreAffinity returns the weights of the domains by the preferences of the pod and of the pods on
// nodes.
func (a *attempt) scoreAffinity() map[domain]int64 {
	weights := map[domain]int64{}
	if len(a.preferred)+len(a.preferredAgainst) > 0 {
		for other := range a.cluster.placed() {
			count(weights, a.preferred, other.pod, other.node, 1, a.namespaces)
			count(weights, a.preferredAgainst, other.pod, other.node, -1, a.namespaces)
		}
	}
	for _, other := range a.cluster.withTerms {
		for i := range other.pod.affinity {
			if t := &other.pod.affinity[i]; t.matches(a.pod, a.namespaces) {
				countIn(weights, other.node, t.topologyKey, hardWeight)
			}
		}
		count(weights, other.preferred, a.pod, other.node, 1, a.namespaces)
		count(weights, other.preferredAgainst, a.pod, other.node, -1, a.namespaces)
	}
	return weights
}

// count adds the weights of those terms that select p, times sign, to the domains of a node.
func count(
	weights map[domain]int64, terms []term, p *pod, n *node, sign int64,
	namespaces func(string) labels.Set,
) {
	for i := range terms {
		if t := &terms[i]; t.matches(p, namespaces) {
			countIn(weights, n, t.topologyKey, sign*t.weight)
		}
	}
}
