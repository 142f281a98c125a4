package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestAdmissionNodeDeclaredFeatureValidator(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	addNode(t, client, "new", "linux", "InPlacePodLevelResourcesVerticalScaling")
	addNode(t, client, "old", "linux")
	p := newPlugin(t, "NodeDeclaredFeatureValidator", client)
	whole := func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities("cpu", "1")}
	}
	for name, c := range map[string]struct {
		resource string
		pod      *corev1.Pod
		refused  bool
	}{
		"declared":       {"pods/resize", resized("new", whole), false},
		"not declared":   {"pods/resize", resized("old", whole), true},
		"by the pod":     {"pods", resized("old", whole), true},
		"not needed":     {"pods/resize", resized("old", requests("cpu", "1")), false},
		"other part":     {"pods/ephemeralcontainers", resized("old", whole), false},
		"no such node":   {"pods/resize", resized("none", whole), true},
		"not on a node":  {"pods/resize", resized("", whole), false},
		"nothing to see": {"pods/resize", resized("none"), false},
	} {
		checkRefused(t, name, ask(t, p, c.resource, c.pod, newPod(func(p *corev1.Pod) {
			p.Generation = 1
		})), c.refused)
	}
}
