package simulated

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"

	"github.com/kinproc/kinproc/server/internal/informers/generated"
)

// othersNodes returns nodes whose informers are not started.
func othersNodes(t *testing.T, c Config) *Nodes {
	t.Helper()
	c.Informers = generated.Informers{
		SharedInformerFactory: informers.NewSharedInformerFactory(nil, 0),
	}
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func othersNode(name string) *corev1.Node {
	found := &corev1.Node{}
	found.Name, found.UID = name, types.UID(name)
	found.Annotations = map[string]string{kwokMark: kwokFake}
	found.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
	return found
}

func othersPod(name, node, ip string) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
	p.Name, p.Namespace, p.UID, p.Status.PodIP = name, "default", types.UID(name), ip
	return p
}

// A range of addresses is not given to another node while pods of a deleted one still have some.
// Nothing is left of nodes that are gone with their pods.
func TestNodesOfOthersComeAndGo(t *testing.T) {
	t.Parallel()
	n := othersNodes(t, Config{Count: 2})
	count := n.ranges.count()
	held := othersPod("held", "keeps", "")
	n.nodeSeen(othersNode("keeps"))
	n.place(n.byName["keeps"])
	n.podChanged(nil, held)
	held.Status.PodIP = n.address(n.byName["keeps"], held).String()
	n.nodeGone(othersNode("keeps"))
	for i := range 2 * count {
		name := fmt.Sprintf("node-%d", i)
		n.nodeSeen(othersNode(name))
		node := n.byName[name]
		if !n.place(node) {
			t.Fatalf("%s has no range", name)
		}
		p := othersPod("pod", name, "")
		n.podChanged(nil, p)
		if ip := n.address(node, p).String(); ip == held.Status.PodIP {
			t.Fatalf("a pod on %s has the address %s of another pod", name, ip)
		}
		n.podChanged(p, nil)
		n.nodeGone(othersNode(name))
	}
	n.podChanged(held, nil)
	if len(n.byName) != 2 || len(n.byIndex) != 2 || n.working != 0 {
		t.Errorf("%d nodes with %d ranges are left, and %d work", len(n.byName), len(n.byIndex),
			n.working)
	}
}

// Once all ranges are taken, a further node is left alone until one is free.
func TestNodesOfOthersRunOutOfRanges(t *testing.T) {
	t.Parallel()
	n := othersNodes(t, Config{Count: 1})
	for i := range n.ranges.count() {
		found := othersNode(fmt.Sprint(i))
		n.nodeSeen(found)
		if placed, last := n.place(n.byName[found.Name]), i == n.ranges.count()-1; placed == last {
			t.Fatalf("node %d has a range: %t", i, placed)
		}
	}
	last := n.byName[fmt.Sprint(n.ranges.count()-1)]
	if _, works := n.host(othersPod("p", last.name, "")); works {
		t.Error("the node without a range runs pods")
	}
	n.nodeGone(othersNode("5"))
	if !n.place(last) {
		t.Error("the node does not get the range of one that is gone")
	}
}

// A node whose maker left it room for more pods than a range has addresses gets another range.
func TestNodesOfOthersGrow(t *testing.T) {
	t.Parallel()
	n := othersNodes(t, Config{Count: 1})
	n.nodeSeen(othersNode("large"))
	large := n.byName["large"]
	n.place(large)
	seen := map[string]bool{}
	var all []*corev1.Pod
	for i := range 600 {
		p := othersPod(fmt.Sprint(i), "large", "")
		n.podChanged(nil, p)
		addr := n.address(large, p)
		if !addr.IsValid() || seen[addr.String()] {
			t.Fatalf("pod %d gets %s", i, addr)
		}
		seen[addr.String()] = true
		p.Status.PodIP = addr.String()
		all = append(all, p)
	}
	if len(large.indices) != 3 {
		t.Errorf("600 pods have %d ranges", len(large.indices))
	}

	// At the next start, pods may be seen before their node, and another node before both.
	n = othersNodes(t, Config{Count: 1})
	n.nodeSeen(othersNode("new"))
	for _, p := range all {
		n.podChanged(nil, p)
	}
	n.place(n.byName["new"])
	p := othersPod("new", "new", "")
	n.podChanged(nil, p)
	if ip := n.address(n.byName["new"], p).String(); seen[ip] {
		t.Errorf("a pod on another node gets %s", ip)
	}
}

func TestOwnNodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		labels map[string]string
		own    bool
	}{
		{"simulated-0", map[string]string{Label: "true"}, true},
		{"simulated-12", map[string]string{Label: "true"}, true},
		{"simulated-gpu-3", map[string]string{Label: "true", KindLabel: "gpu"}, true},
		{"simulated-0", nil, false},
		{"simulated-0", map[string]string{Label: "true", kwokMark: kwokFake}, false},
		{"simulated-007", map[string]string{Label: "true"}, false},
		{"simulated-", map[string]string{Label: "true"}, false},
		{"simulated--1", map[string]string{Label: "true"}, false},
		{"simulated-gpu-3", map[string]string{Label: "true"}, false},
		{"simulated-3", map[string]string{Label: "true", KindLabel: "gpu"}, false},
		{"node-0", map[string]string{Label: "true"}, false},
	} {
		found := &corev1.Node{}
		found.Name, found.Labels = c.name, c.labels
		if isOwn(found) != c.own {
			t.Errorf("%s with the labels %v is kinproc's own: %t", c.name, c.labels, !c.own)
		}
	}
}
