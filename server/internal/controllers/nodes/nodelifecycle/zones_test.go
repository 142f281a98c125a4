package nodelifecycle

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodesOf says how many nodes a zone has.
type nodesOf struct{ ready, notReady, excluded int }

// zonesWith returns zones with nodes, and the names of those that are not ready.
func zonesWith(all map[string]nodesOf) (z *zones, names []string) {
	z = newZones(Patience{
		EvictAfter: time.Second, Pause: 10 * time.Second, SlowPause: 100 * time.Second,
	})
	for in, n := range all {
		for i := range n.ready {
			z.seen(nodeOf(in, fmt.Sprintf("%s-ready-%d", in, i), corev1.ConditionTrue))
		}
		for i := range n.notReady {
			names = append(names, fmt.Sprintf("%s-%d", in, i))
			z.seen(nodeOf(in, names[len(names)-1], corev1.ConditionFalse))
		}
		for i := range n.excluded {
			names = append(names, fmt.Sprintf("%s-excluded-%d", in, i))
			n := nodeOf(in, names[len(names)-1], corev1.ConditionFalse)
			n.Labels[excluded] = ""
			z.seen(n)
		}
	}
	return z, names
}

func nodeOf(in, name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelTopologyZone: in},
		},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: ready},
		}},
	}
}

// evicted returns how many nodes lose their pods within some time.
func evicted(z *zones, names []string, within time.Duration) int {
	done := map[string]bool{}
	for end := time.Now().Add(within); ; {
		next := time.Until(end)
		for _, name := range names {
			yes, wait := z.evicts(name, done[name])
			done[name] = yes
			if !yes && wait > 0 {
				next = min(next, wait)
			}
		}
		if !time.Now().Before(end) {
			break
		}
		time.Sleep(next)
	}
	n := 0
	for _, yes := range done {
		if yes {
			n++
		}
	}
	return n
}

// The numbers are those of kube-controller-manager: 0.1 nodes of each zone in a second, 0.01 in a
// large zone most of whose nodes are not ready, and none in a small one.
func TestZones(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		zones map[string]nodesOf
		want  int // within 205 s
	}{
		"one":                 {map[string]nodesOf{"a": {ready: 1, notReady: 1}}, 1},
		"half of them":        {map[string]nodesOf{"a": {ready: 40, notReady: 40}}, 21},
		"two of three":        {map[string]nodesOf{"a": {ready: 1, notReady: 2}}, 2},
		"most of a small one": {map[string]nodesOf{"a": {ready: 2, notReady: 3}}, 0},
		"55 %":                {map[string]nodesOf{"a": {ready: 18, notReady: 22}}, 0},
		"54 %":                {map[string]nodesOf{"a": {ready: 19, notReady: 22}}, 21},
		"most of 50":          {map[string]nodesOf{"a": {ready: 1, notReady: 49}}, 0},
		"most of 51":          {map[string]nodesOf{"a": {ready: 1, notReady: 50}}, 3},
		"a whole zone":        {map[string]nodesOf{"a": {notReady: 30}, "b": {ready: 1}}, 21},
		"zone by zone":        {map[string]nodesOf{"a": {1, 2, 0}, "b": {2, 3, 0}}, 2},
		"all":                 {map[string]nodesOf{"a": {notReady: 3}, "b": {notReady: 1}}, 0},
		"excluded":            {map[string]nodesOf{"a": {ready: 1, excluded: 5}}, 5},
		"none counts":         {map[string]nodesOf{"a": {excluded: 5}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				z, names := zonesWith(test.zones)
				if got := evicted(z, names, 205*time.Second); got != test.want {
					t.Errorf("%d nodes lost their pods, want %d", got, test.want)
				}
			})
		})
	}
}

// TestZonesChange has all nodes fail while one is losing its pods, and another one come back.
func TestZonesChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := newZones(Patience{EvictAfter: time.Second, Pause: 10 * time.Second})
		for name, ready := range map[string]corev1.ConditionStatus{
			"first": corev1.ConditionFalse, "a": corev1.ConditionTrue, "b": corev1.ConditionTrue,
			"c": corev1.ConditionTrue,
		} {
			z.seen(nodeOf("", name, ready))
		}
		check := func(name string, losing, want bool, wantWait time.Duration) {
			t.Helper()
			if yes, wait := z.evicts(name, losing); yes != want || wait != wantWait {
				t.Errorf("%s: %v, wait %v, want %v, %v", name, yes, wait, want, wantWait)
			}
		}
		change := func(name string, ready corev1.ConditionStatus, want ...string) {
			t.Helper()
			got := z.seen(nodeOf("", name, ready))
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("after %s is %s: look at %v, want %v", name, ready, got, want)
			}
		}
		check("first", false, false, time.Second)
		time.Sleep(time.Second)
		check("first", false, true, 0)
		check("first", false, true, 0) // the write may have failed
		change("a", corev1.ConditionUnknown)
		check("a", false, false, 10*time.Second)
		change("b", corev1.ConditionUnknown, "a", "b", "first")
		time.Sleep(time.Minute)
		check("first", true, true, 0)
		check("a", false, false, 0)
		change("c", corev1.ConditionUnknown, "a", "b", "c", "first")
		check("first", true, false, 0)
		time.Sleep(time.Minute)
		change("c", corev1.ConditionTrue, "a", "b", "first")
		check("a", false, false, 0)
		if got := z.gone("b"); len(got) != 2 {
			t.Errorf("after b is gone: look at %v", got)
		}
		check("a", false, false, 10*time.Second)
		time.Sleep(10 * time.Second)
		check("a", false, true, 0)
		check("first", false, false, 10*time.Second)
	})
}
