package simulated

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestAdmitTainted has a pod that does not tolerate a taint, and one that a scheduler has placed.
func TestAdmitTainted(t *testing.T) {
	t.Parallel()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	err := indexer.Add(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "gone", Effect: corev1.TaintEffectNoExecute},
		}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourcePods: resource.MustParse("9"),
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	host := &node{name: "n", pods: map[string]types.UID{"default/p": "p"}}
	n := &Nodes{nodes: corelisters.NewNodeLister(indexer), byName: map[string]*node{"n": host}}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}}
	p.Spec.NodeName = "n"
	if r, wait := n.admit(host, p); r == nil || r.reason != "TaintToleration" || wait > 0 {
		t.Errorf("the pod is rejected after %s because of %+v", wait, r)
	}
	// One pod after the other, however often the node is asked.
	another := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q", UID: "q"}}
	host.pods["default/q"] = "q"
	for range 5 {
		r, wait := n.admit(host, another)
		if r == nil || wait <= 0 || wait > rejectPause {
			t.Errorf("another pod is rejected after %s because of %+v", wait, r)
		}
	}
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
	n.claim(p)
	if r, _ := n.admit(host, p); r != nil || len(host.claims.pods) != 1 ||
		len(host.claims.turns) != 1 {
		t.Errorf("the scheduled pod is rejected because of %+v; claims: %+v", r, host.claims)
	}
}
