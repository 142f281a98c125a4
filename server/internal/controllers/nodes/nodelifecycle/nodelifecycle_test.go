package nodelifecycle

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// TestAlive looks at a node whose lease was renewed, but the informer of leases has not seen it.
func TestAlive(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		}},
	}
	renewed := metav1.NewMicroTime(time.Now())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: corev1.NamespaceNodeLease},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed},
	}
	client := fake.NewClientset(node, lease)
	empty := func() cache.Indexer {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
			cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		})
	}
	nodes := empty()
	if err := nodes.Add(node); err != nil {
		t.Fatal(err)
	}
	patience := Patience{Grace: time.Minute}
	c := &controller{
		Controller: &loop.Controller{
			Dependencies: loop.Dependencies{Client: client}, Queue: loop.New(Name),
			Recorder: record.NewFakeRecorder(10),
		},
		Patience: patience, zones: newZones(patience),
		nodes: corelisters.NewNodeLister(nodes),
		pods:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, pods.WithNodes(loop.Watch{}).Indexers),
		heard: map[string]sign{"n": {at: time.Now().Add(-time.Hour)}},
	}
	ready := func() corev1.ConditionStatus {
		t.Helper()
		n, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return condition(n, corev1.NodeReady).Status
	}
	wait, err := c.sync(t.Context(), "n")
	if err != nil || wait <= 0 || wait > 2*time.Minute || ready() != corev1.ConditionTrue {
		t.Errorf("the node has renewed its lease, but %v, wait %v, Ready is %s", err, wait, ready())
	}
	c.heard["n"] = sign{at: time.Now().Add(-time.Hour), renewed: renewed.Time}
	if _, err := c.sync(t.Context(), "n"); err != nil || ready() != corev1.ConditionUnknown {
		t.Errorf("the node is silent, but %v, Ready is %s", err, ready())
	}
}
