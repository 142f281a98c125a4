package simulated

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"

	"github.com/kinproc/kinproc/server/internal/informers/generated"
)

// A pod keeps its address when the numbers of nodes change, and no other pod gets it, though it
// may be in the range of another node by then.
func TestAddressesStayTakenWhenRangesMove(t *testing.T) {
	t.Parallel()
	nodes := func(small int) *Nodes {
		n, err := New(Config{
			// nothing is started
			Informers: generated.Informers{SharedInformerFactory: informers.NewSharedInformerFactory(nil, 0)},
			Count:     1,
			Kinds:     []Kind{{Name: "small", Count: small}, {Name: "large", Count: 1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	pod := func(uid, node, ip string) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
		p.Name, p.Namespace, p.UID, p.Status.PodIP = uid, "default", types.UID(uid), ip
		return p
	}
	before := nodes(1)
	first := pod("first", "simulated-large-0", "")
	before.podChanged(nil, first)
	first.Status.PodIP = before.address(before.byName["simulated-large-0"], first).String()

	after := nodes(2)
	second := after.byName["simulated-small-1"]
	after.podChanged(nil, first)
	if second.ips.prefixes[0] != before.byName["simulated-large-0"].ips.prefixes[0] {
		t.Fatal("the range has not moved, so this test finds nothing")
	}
	p := pod("second", "simulated-small-1", "")
	after.podChanged(nil, p)
	if got := after.address(second, p).String(); got == first.Status.PodIP {
		t.Errorf("two pods have the address %s", got)
	}
	after.podChanged(first, nil)
	if len(second.ips.taken) != 1 {
		t.Errorf("the addresses %v are taken after the pod is gone", second.ips.taken)
	}
}

func TestCheckKinds(t *testing.T) {
	t.Parallel()
	taint := corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		kind Kind
		ok   bool
	}{
		"plain":           {Kind{Name: "gpu", Count: 3, Taints: []corev1.Taint{taint}}, true},
		"no name":         {Kind{}, false},
		"capital letters": {Kind{Name: "GPU"}, false},
		"negative":        {Kind{Name: "gpu", Count: -1}, false},
		"own label":       {Kind{Name: "gpu", Labels: map[string]string{Label: "false"}}, false},
		"wrong label":     {Kind{Name: "gpu", Labels: map[string]string{"a": "b c"}}, false},
		"taint twice":     {Kind{Name: "gpu", Taints: []corev1.Taint{taint, taint}}, false},
		"taint of nodes": {Kind{Name: "gpu", Taints: []corev1.Taint{
			{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule},
		}}, false},
		"too many": {Kind{Name: "gpu", Count: 1 << 20}, false},
	} {
		if err := Check(1, nil, []Kind{c.kind}); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
