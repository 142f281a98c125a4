package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// event is a set of kinds of events that may make room for a pod.
type event uint

const (
	nodeChanged event = 1 << iota
	podGone
	podPlaced // a pod was put on a node or got other labels
	volumesChanged
	devicesChanged
	namespacesChanged
	podChanged // the pod itself
)

// verdict is why a pod cannot go to a node. It is zero if the pod can.
type verdict struct {
	reason string
	more   []string // further reasons
	// final is set if evicting other pods from the node would not help.
	final bool
	helps event
	// err is why the whole attempt has failed. It may be nil.
	err error
}

func (v *verdict) ok() bool { return v.reason == "" }

// attempt is one attempt to find a node for a pod.
type attempt struct {
	*pod
	wishes
	cluster    *cluster
	namespaces func(string) labels.Set
	volumes    *volumes // may be nil if the pod uses no volume claims
	devices    *devices // may be nil if the pod uses no claims of devices
	search     *search  // for devices; nil before it has begun

	prepared
}

// prepared is what is worked out once for all nodes, from the pods on them.
type prepared struct {
	near    affinityCounts
	counts  []domainCounts // of the spread constraints that must be satisfied
	bound   podVolumes
	devices podDevices
}

// failure is why a pod can go to no node.
type failure struct {
	nodes   int
	whole   string         // the reason, if it does not depend on the node
	early   bool           // the whole reason was found before claims of devices were looked at
	err     error          // why the attempt failed, rather than why the pod fits nowhere
	reasons map[string]int // the number of nodes by reason
	// open are the nodes of which evicting pods may help.
	open  []*node
	helps event
}

func (f *failure) add(n *node, v verdict) {
	f.reasons[v.reason]++
	for _, reason := range v.more {
		f.reasons[reason]++
	}
	if !v.final {
		f.open = append(f.open, n)
	}
	f.helps |= v.helps
	if v.err != nil && f.err == nil {
		f.err = v.err
	}
}

// Error returns the message of kube-scheduler.
func (f *failure) Error() string {
	if f.err != nil {
		return f.err.Error()
	}
	if f.nodes == 0 {
		return "no nodes available to schedule pods"
	}
	if f.whole != "" {
		return fmt.Sprintf("%s: %s.", unavailable(f.nodes), f.whole)
	}
	return counted(f.nodes, f.reasons)
}

func unavailable(nodes int) string { return fmt.Sprintf("0/%d nodes are available", nodes) }

func counted(nodes int, reasons map[string]int) string {
	var list []string
	for reason, n := range reasons {
		list = append(list, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(list)
	return fmt.Sprintf("%s: %s.", unavailable(nodes), strings.Join(list, ", "))
}

// prepare works out what does not depend on the node. It returns why the pod cannot go to any node,
// and whether it has not looked at claims of devices because of that.
func (a *attempt) prepare() (v verdict, early bool) {
	if a.names != nil && len(a.names) == 0 {
		return verdict{reason: "pod affinity terms conflict", final: true, helps: podChanged}, true
	}
	if v := a.prepareVolumes(); !v.ok() {
		return v, true
	}
	if v := a.prepareDevices(); !v.ok() {
		return v, false
	}
	a.prepareSpread()
	a.prepareAffinity()
	return verdict{}, false
}

// filter returns why the pod cannot go to a node.
func (a *attempt) filter(n *node) verdict {
	if v := a.filterNode(n); !v.ok() {
		return v
	}
	if v := a.filterPorts(n); !v.ok() {
		return v
	}
	if v := a.filterResources(n); !v.ok() {
		return v
	}
	if v := a.filterVolumes(n); !v.ok() {
		return v
	}
	if v := a.filterSpread(n); !v.ok() {
		return v
	}
	if v := a.filterAffinity(n); !v.ok() {
		return v
	}
	if v := a.filterFeatures(n); !v.ok() {
		return v
	}
	return a.filterDevices(n) // the last one, because it takes longest
}

// find returns the best node for the pod.
func (a *attempt) find() (*node, *failure) {
	c := a.cluster
	f := &failure{nodes: len(c.order), reasons: map[string]int{}}
	if f.nodes == 0 {
		f.helps = nodeChanged | podPlaced // even a node that does not suit the pod changes the message
		return nil, f
	}
	if v, early := a.prepare(); !v.ok() {
		f.whole, f.early, f.helps = v.reason, early, v.helps
		return nil, f
	}
	// Pods were evicted for this one, so the node is taken even if another is better.
	if n := c.nodes[a.Status.NominatedNodeName]; n != nil && n.Node != nil {
		if v := a.filter(n); v.ok() {
			return n, nil
		}
	}
	candidates, start := c.order, c.start%len(c.order)
	if a.names != nil {
		candidates, start = nil, 0
		for name := range a.names {
			if n := c.nodes[name]; n != nil && n.Node != nil {
				candidates = append(candidates, n)
			}
		}
		if others := f.nodes - len(candidates); others > 0 {
			f.reasons["node(s) didn't satisfy plugin(s) [NodeAffinity]"] = others
			f.helps |= nodeChanged
		}
	}
	enough := enoughNodes(len(candidates))
	var feasible []*node
	looked := 0
	for ; looked < len(candidates) && len(feasible)+len(a.prepared.devices.ask) < enough; looked++ {
		n := candidates[(start+looked)%len(candidates)]
		if v := a.filter(n); v.ok() {
			feasible = append(feasible, n)
		} else {
			f.add(n, v)
		}
	}
	if a.names == nil && len(a.prepared.devices.ask) == 0 {
		c.start = start + looked
	}
	// Unlike in kube-scheduler, a node for which there was no time does not rule out the others.
	if len(feasible) == 0 || f.err != nil && !errors.Is(f.err, errTimedOut) {
		return nil, f
	}
	return a.best(feasible), nil
}

// enoughNodes returns how many nodes that fit are enough to choose from, out of a number of nodes.
// The share is that of kube-scheduler: it falls from 50 % to 5 %.
func enoughNodes(nodes int) int {
	const least = 100
	if nodes <= least {
		return nodes
	}
	percent := max(50-nodes/125, 5)
	return max(nodes*percent/100, least)
}
