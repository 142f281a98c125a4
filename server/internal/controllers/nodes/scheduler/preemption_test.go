package scheduler

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPreemptionInLargeCluster has a full cluster and an important pod that looks at all other
// pods. Nobody else is scheduled while the victims are chosen.
func TestPreemptionInLargeCluster(t *testing.T) {
	t.Parallel()
	const nodes, perNode = 2000, 20
	c := newCluster()
	for i := range nodes {
		n := benchmarkNode(i)
		n.Status.Allocatable[corev1.ResourceCPU] = *resource.NewQuantity(perNode, resource.DecimalSI)
		c.setNode(n)
	}
	for i := range nodes * perNode {
		p := benchmarkPod(i)
		p.Labels = map[string]string{"app": fmt.Sprint(i % 2)}
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
		if i%10 == 0 {
			p.Spec.Affinity = preemptionAffinity("important")
		}
		c.put(newPod(p), fmt.Sprint("node-", i/perNode), false)
	}
	p := benchmarkPod(nodes * perNode)
	p.Labels = map[string]string{"app": "important"}
	p.Spec.Priority = new(int32(1000))
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
	p.Spec.Affinity = preemptionAffinity("important")
	p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "1"}},
			TopologyKey:   corev1.LabelTopologyZone,
		}},
	}
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone,
		WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "important"}},
	}}
	w, err := newWishes(p)
	if err != nil {
		t.Fatal(err)
	}
	a := &attempt{pod: newPod(p), wishes: w, cluster: c}
	n, f := a.find()
	if n != nil {
		t.Fatalf("the pod fits on %s", n.name)
	}
	before := *a
	before.near = affinityCounts{
		maps.Clone(a.near.near), maps.Clone(a.near.far), maps.Clone(a.near.refused),
	}
	// If everything were counted anew for each victim, this would take longer than a test may.
	chosen, why := a.preempt(f, nil)
	if chosen == nil {
		t.Fatal(why)
	}
	// Two pods make room for the processors, and the two that refuse to be near must go.
	if len(chosen.victims) != 2 {
		t.Errorf("%d pods are to be evicted from %s, want 2", len(chosen.victims), chosen.node.name)
	}
	if !maps.Equal(a.near.near, before.near.near) || !maps.Equal(a.near.far, before.near.far) ||
		!maps.Equal(a.near.refused, before.near.refused) {
		t.Error("the counts are not what they were before")
	}
	// The counts that were kept step by step are those of a new attempt.
	for _, v := range chosen.victims {
		a.detach(v)
	}
	fresh := &attempt{pod: a.pod, wishes: w, cluster: c}
	fresh.prepare()
	if !maps.Equal(a.near.near, fresh.near.near) || !maps.Equal(a.near.far, fresh.near.far) ||
		!maps.Equal(a.near.refused, fresh.near.refused) {
		t.Error("the counts without the victims are not those of a new attempt")
	}
	for i := range fresh.counts {
		if got, want := a.counts[i], fresh.counts[i]; got.least != want.least ||
			!maps.Equal(got.pods, want.pods) {
			t.Errorf("spread: %v, want %v", got, want)
		}
	}
	if v := a.filter(chosen.node); !v.ok() {
		t.Errorf("the pod does not fit without the victims: %s", v.reason)
	}
}

// preemptionAffinity returns the wish to be on a node without pods of an app.
func preemptionAffinity(app string) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			TopologyKey:   corev1.LabelHostname,
		}},
	}}
}
