package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// antiAffinity (LimitPodHardAntiAffinityTopology) rejects pods whose required anti-affinity has a
// topology key other than the hostname. Off by default.
type antiAffinity struct{ *admission.Handler }

func newAntiAffinity() admission.Interface {
	return antiAffinity{admission.NewHandler(admission.Create, admission.Update)}
}

func (antiAffinity) Validate(
	_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	pod, ok, err := plugin.Object[*corev1.Pod](a, pods)
	if !ok {
		return err
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	apart := pod.Spec.Affinity.PodAntiAffinity
	for _, term := range apart.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey != corev1.LabelHostname {
			return plugin.Forbid(a,
				"required pod anti-affinity has the topology key %q, but only %s is allowed", term.TopologyKey,
				corev1.LabelHostname)
		}
	}
	return nil
}
