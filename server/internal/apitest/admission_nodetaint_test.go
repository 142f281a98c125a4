package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAdmissionTaintNodesByCondition(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, "TaintNodesByCondition", nil)
	notReady := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}
	other := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute}
	node := func(taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n"},
			Spec:       corev1.NodeSpec{Taints: taints},
		}
	}
	for name, c := range map[string]struct {
		node, old *corev1.Node
		want      int
	}{
		"new":           {node: node(), want: 1},
		"tainted":       {node: node(notReady), want: 1},
		"other effect":  {node: node(other), want: 2},
		"not on update": {node: node(), old: node(notReady), want: 0},
	} {
		err := ask(t, p, "nodes", c.node, c.old)
		if err != nil || len(c.node.Spec.Taints) != c.want {
			t.Errorf("%s: taints are %v (%v), want %d", name, c.node.Spec.Taints, err, c.want)
		}
	}
}
