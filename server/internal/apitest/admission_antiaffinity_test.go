package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestAdmissionLimitPodHardAntiAffinityTopology(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, "LimitPodHardAntiAffinityTopology", nil)
	preferred := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
				{Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "zone"}},
			},
		}}
	}
	checkRefused(t, "none", ask(t, p, "pods", newPod(), nil), false)
	checkRefused(t, "host",
		ask(t, p, "pods", newPod(antiAffinityTo("kubernetes.io/hostname")), nil), false)
	checkRefused(t, "zone", ask(t, p, "pods", newPod(antiAffinityTo("zone")), nil), true)
	checkRefused(t, "zone on update",
		ask(t, p, "pods", newPod(antiAffinityTo("zone")), newPod()), true)
	checkRefused(t, "zone, of the status",
		ask(t, p, "pods/status", newPod(antiAffinityTo("zone")), newPod()), false)
	checkRefused(t, "zone, preferred", ask(t, p, "pods", newPod(preferred), nil), false)
}
