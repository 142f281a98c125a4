package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/chain/features"
)

// filterNode checks what depends on the node alone: its name, taints and labels.
func (a *attempt) filterNode(n *node) verdict {
	final := func(reason string) verdict {
		return verdict{reason: reason, final: true, helps: nodeChanged}
	}
	log := klog.Background()
	if n.Spec.Unschedulable && !corev1helpers.TolerationsTolerateTaint(log, a.Spec.Tolerations,
		&corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, false) {
		return final("node(s) were unschedulable")
	}
	for i := range n.Spec.Taints {
		taint := &n.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectPreferNoSchedule &&
			!corev1helpers.TolerationsTolerateTaint(log, a.Spec.Tolerations, taint, false) {
			return final("node(s) had untolerated taint(s)")
		}
	}
	// Invalid terms match nothing.
	if match, _ := a.nodes.Match(n.Node); !match {
		return final("node(s) didn't match Pod's node affinity/selector")
	}
	return verdict{}
}

// filterFeatures checks that the node has declared the features that the pod requires.
func (a *attempt) filterFeatures(n *node) verdict {
	if !features.Enabled(features.NodeDeclaredFeatures) {
		return verdict{}
	}
	for _, feature := range a.features {
		if !slices.Contains(n.Status.DeclaredFeatures, feature) {
			return verdict{
				reason: "node(s) didn't match Pod's required features", final: true, helps: nodeChanged,
			}
		}
	}
	return verdict{}
}

// filterPorts checks that the ports of the host are free.
func (a *attempt) filterPorts(n *node) verdict {
	taken := verdict{
		reason: "node(s) didn't have free ports for the requested pod ports",
		helps:  nodeChanged | podGone,
	}
	for _, wanted := range a.ports {
		for used := range n.ports {
			if wanted.conflicts(used) {
				return taken
			}
		}
		for _, other := range a.rivals(n) {
			for _, used := range other.ports {
				if wanted.conflicts(used) {
					return taken
				}
			}
		}
	}
	return verdict{}
}

// rivals returns the pods for which others were evicted from the node and that go first.
func (a *attempt) rivals(n *node) []*pod {
	var rivals []*pod
	for _, other := range a.cluster.nominated[n.name] {
		if other.UID != a.UID && other.priority >= a.priority {
			rivals = append(rivals, other)
		}
	}
	return rivals
}

// filterResources checks that the node has the resources that the pod requests.
func (a *attempt) filterResources(n *node) verdict {
	pods, used := len(n.pods), &n.requested
	if rivals := a.rivals(n); len(rivals) > 0 {
		var sum resources
		sum.add(used, 1)
		for _, other := range rivals {
			pods++
			sum.add(&other.requests, 1)
		}
		used = &sum
	}
	var reasons []string
	if pods+1 > n.maxPods {
		reasons = append(reasons, "Too many pods")
	}
	names, never := n.allocatable.lacking(used, &a.requests, a.prepared.devices.offered)
	for _, name := range names {
		reasons = append(reasons, "Insufficient "+name)
	}
	if len(reasons) == 0 {
		return verdict{}
	}
	helps := nodeChanged | podGone
	if len(a.extended) > 0 {
		helps |= devicesChanged // a new class may offer them
	}
	return verdict{reason: reasons[0], more: reasons[1:], final: never, helps: helps}
}

// suits reports whether a node that has just changed might take the pod, apart from other pods.
func (a *attempt) suits(n *node) bool {
	v := a.filterNode(n)
	if v.ok() {
		v = a.filterFeatures(n)
	}
	names, _ := n.allocatable.lacking(&resources{}, &a.requests, nil)
	return v.ok() && len(names) == 0
}
