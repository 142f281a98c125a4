package nodelifecycle

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// taint makes the taints of a node those that follow from its conditions. Others stay. If the one
// that evicts pods has to wait, it returns for how long.
func (c *controller) taint(
	ctx context.Context, found *corev1.Node,
) (_ *corev1.Node, turn time.Duration, _ error) {
	wanted := wantedTaints(found)
	if slices.ContainsFunc(wanted, evicting) {
		var evicts bool
		losing := slices.ContainsFunc(found.Spec.Taints, evicting)
		if evicts, turn = c.zones.evicts(found.Name, losing); !evicts {
			wanted = slices.DeleteFunc(wanted, evicting)
		}
	}
	var taints []corev1.Taint
	for _, t := range found.Spec.Taints {
		i := slices.IndexFunc(wanted, func(w corev1.Taint) bool { return w.MatchTaint(&t) })
		switch {
		case i >= 0:
			taints = append(taints, t)
			wanted = slices.Delete(wanted, i, i+1)
		case !follows(t):
			taints = append(taints, t)
		}
	}
	taints = append(taints, wanted...)
	if equality.Semantic.DeepEqual(taints, found.Spec.Taints) {
		return found, turn, nil
	}
	n := found.DeepCopy()
	n.Spec.Taints = taints
	n, err := c.Client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
	return n, turn, err
}

// evicting reports whether a taint is one that follows from conditions and evicts pods.
func evicting(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute && follows(t) }

// follows reports whether a taint is one of those that follow from conditions.
func follows(t corev1.Taint) bool {
	switch t.Key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable:
		return t.Effect != corev1.TaintEffectPreferNoSchedule
	case corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure,
		corev1.TaintNodeNetworkUnavailable, corev1.TaintNodeUnschedulable:
		return t.Effect == corev1.TaintEffectNoSchedule
	}
	return false
}

// wantedTaints returns the taints that follow from the conditions of a node, and from its being
// cordoned.
func wantedTaints(n *corev1.Node) []corev1.Taint {
	now := metav1.Now()
	var taints []corev1.Taint
	add := func(key string, effects ...corev1.TaintEffect) {
		for _, effect := range effects {
			taints = append(taints, corev1.Taint{Key: key, Effect: effect, TimeAdded: &now})
		}
	}
	if n.Spec.Unschedulable {
		add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	}
	for _, c := range n.Status.Conditions {
		key := ""
		switch c.Type {
		case corev1.NodeReady:
			switch c.Status {
			case corev1.ConditionFalse:
				add(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
			case corev1.ConditionUnknown:
				add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
			}
		case corev1.NodeMemoryPressure:
			key = corev1.TaintNodeMemoryPressure
		case corev1.NodeDiskPressure:
			key = corev1.TaintNodeDiskPressure
		case corev1.NodePIDPressure:
			key = corev1.TaintNodePIDPressure
		case corev1.NodeNetworkUnavailable:
			key = corev1.TaintNodeNetworkUnavailable
		}
		if key != "" && c.Status == corev1.ConditionTrue {
			add(key, corev1.TaintEffectNoSchedule)
		}
	}
	return taints
}
