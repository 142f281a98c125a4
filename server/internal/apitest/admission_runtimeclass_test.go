package apitest

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAdmissionRuntimeClass(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	p := newPlugin(t, "RuntimeClass", client)
	exists := corev1.Toleration{
		Key:      "sandbox",
		Operator: corev1.TolerationOpExists,
		Effect:   corev1.TaintEffectNoSchedule,
	}
	for _, c := range []*nodev1.RuntimeClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Handler: "h"},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "full"},
			Handler:    "h",
			Overhead:   &nodev1.Overhead{PodFixed: quantities("memory", "10Mi")},
			Scheduling: &nodev1.Scheduling{
				NodeSelector: map[string]string{"runtime": "full"},
				Tolerations:  []corev1.Toleration{exists},
			},
		},
	} {
		must(client.NodeV1().RuntimeClasses().Create(t.Context(), c, metav1.CreateOptions{}))(t)
	}
	pod := func(class string, change ...func(*corev1.Pod)) *corev1.Pod {
		return newPod(append(change, func(p *corev1.Pod) {
			if class != "" {
				p.Spec.RuntimeClassName = &class
			}
		})...)
	}
	selecting := func(value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"runtime": value, "disk": "fast"}
		}
	}
	overhead := func(memory string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Overhead = quantities("memory", memory) }
	}
	for name, c := range map[string]struct {
		pod      *corev1.Pod
		refused  bool
		selector map[string]string
		// tolerations is formatted by tolerationsOf.
		tolerations string
	}{
		"none":                {pod: pod("")},
		"none, but overhead":  {pod: pod("", overhead("10Mi")), refused: true},
		"unknown":             {pod: pod("unknown"), refused: true},
		"plain":               {pod: pod("plain")},
		"plain, but overhead": {pod: pod("plain", overhead("10Mi")), refused: true},
		"full": {
			pod:         pod("full"),
			selector:    map[string]string{"runtime": "full"},
			tolerations: "sandbox=:NoSchedule",
		},
		"full, same overhead": {
			pod:         pod("full", overhead("10240Ki")),
			selector:    map[string]string{"runtime": "full"},
			tolerations: "sandbox=:NoSchedule",
		},
		"full, empty overhead": {
			pod:         pod("full", func(p *corev1.Pod) { p.Spec.Overhead = corev1.ResourceList{} }),
			selector:    map[string]string{"runtime": "full"},
			tolerations: "sandbox=:NoSchedule",
		},
		"full, other overhead": {pod: pod("full", overhead("1Mi")), refused: true},
		"full, same selector": {
			pod:         pod("full", selecting("full")),
			selector:    map[string]string{"runtime": "full", "disk": "fast"},
			tolerations: "sandbox=:NoSchedule",
		},
		"full, other selector": {pod: pod("full", selecting("other")), refused: true},
		"full, tolerates it": {
			pod:         pod("full", tolerating(exists)),
			selector:    map[string]string{"runtime": "full"},
			tolerations: "sandbox=:NoSchedule",
		},
		"full, tolerates more": {
			pod:         pod("full", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})),
			selector:    map[string]string{"runtime": "full"},
			tolerations: "=:",
		},
		"full, tolerates other": {
			pod: pod("full",
				tolerating(corev1.Toleration{Key: "x", Operator: corev1.TolerationOpExists})),
			selector:    map[string]string{"runtime": "full"},
			tolerations: "x=: sandbox=:NoSchedule",
		},
		"full, tolerates less": {
			pod: pod("full", tolerating(corev1.Toleration{
				Key:      "sandbox",
				Operator: corev1.TolerationOpEqual,
				Value:    "v",
				Effect:   "NoSchedule",
			})),
			selector:    map[string]string{"runtime": "full"},
			tolerations: "sandbox=:NoSchedule",
		},
	} {
		checkRefused(t, name+", updated", ask(t, p, "pods", c.pod.DeepCopy(), newPod()), false)
		err := ask(t, p, "pods", c.pod, nil)
		checkRefused(t, name, err, c.refused)
		if err != nil {
			continue
		}
		if s := c.pod.Spec; !maps.Equal(s.NodeSelector, c.selector) ||
			tolerationsOf(s.Tolerations) != c.tolerations {
			t.Errorf("%s: node selector %v, tolerations %q",
				name, s.NodeSelector, tolerationsOf(s.Tolerations))
		}
		if full := c.selector != nil; full != (c.pod.Spec.Overhead.Memory().String() == "10Mi") {
			t.Errorf("%s: overhead is %v", name, c.pod.Spec.Overhead)
		}
	}
}
