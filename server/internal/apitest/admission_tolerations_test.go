package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func tolerating(tolerations ...corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = tolerations }
}

func TestAdmissionDefaultTolerationSeconds(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, "DefaultTolerationSeconds", nil)
	const notReady, unreachable = "node.kubernetes.io/not-ready=:NoExecute/300s",
		"node.kubernetes.io/unreachable=:NoExecute/300s"
	exists := func(key string, effect corev1.TaintEffect, seconds *int64) corev1.Toleration {
		return corev1.Toleration{
			Key:               key,
			Operator:          corev1.TolerationOpExists,
			Effect:            effect,
			TolerationSeconds: seconds,
		}
	}
	for name, c := range map[string]struct {
		has  []corev1.Toleration
		want string
	}{
		"none": {nil, notReady + " " + unreachable},
		"other": {
			[]corev1.Toleration{exists("x", "", nil)}, "x=: " + notReady + " " + unreachable,
		},
		"own not ready": {
			[]corev1.Toleration{exists("node.kubernetes.io/not-ready", "NoExecute", new(int64(7)))},
			"node.kubernetes.io/not-ready=:NoExecute/7s " + unreachable,
		},
		"any effect": {
			[]corev1.Toleration{exists("node.kubernetes.io/unreachable", "", nil)},
			"node.kubernetes.io/unreachable=: " + notReady,
		},
		"other effect": {
			[]corev1.Toleration{exists("node.kubernetes.io/unreachable", "NoSchedule", nil)},
			"node.kubernetes.io/unreachable=:NoSchedule " + notReady + " " + unreachable,
		},
		"all": {[]corev1.Toleration{exists("", "", nil)}, "=:"},
		"all, no effect": {
			[]corev1.Toleration{exists("", "NoSchedule", nil)},
			"=:NoSchedule " + notReady + " " + unreachable,
		},
	} {
		// the tolerations are added on create and on update
		for _, old := range []*corev1.Pod{nil, newPod()} {
			pod := newPod(tolerating(c.has...))
			err := ask(t, p, "pods", pod, old)
			if got := tolerationsOf(pod.Spec.Tolerations); err != nil || got != c.want {
				t.Errorf("%s: tolerations are %q (%v), want %q", name, got, err, c.want)
			}
		}
	}
	pod := newPod()
	if err := ask(t, p, "pods/status", pod, newPod()); err != nil || len(pod.Spec.Tolerations) > 0 {
		t.Errorf("an update of the status added %q (%v)", tolerationsOf(pod.Spec.Tolerations), err)
	}
}

func TestAdmissionExtendedResourceToleration(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, "ExtendedResourceToleration", nil)
	initRequests := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{
			{Name: "i", Resources: corev1.ResourceRequirements{Requests: quantities("example.com/a", "1")}},
		}
	}
	own := corev1.Toleration{
		Key:      "example.com/b",
		Operator: corev1.TolerationOpExists,
		Effect:   corev1.TaintEffectNoSchedule,
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"none": {newPod(requests("cpu", "1", "hugepages-2Mi", "2Mi")), ""},
		"two": {
			newPod(requests("example.com/b", "1"), initRequests),
			"example.com/a=:NoSchedule example.com/b=:NoSchedule",
		},
		"limits only": {newPod(limits("example.com/b", "1")), ""},
		"there": {
			newPod(requests("example.com/b", "1"), tolerating(own)), "example.com/b=:NoSchedule",
		},
		"other effect": {newPod(requests("example.com/b", "1"), tolerating(corev1.Toleration{
			Key:      own.Key,
			Operator: own.Operator,
		})), "example.com/b=: example.com/b=:NoSchedule"},
	} {
		if err := ask(t, p, "pods", c.pod, nil); err != nil ||
			tolerationsOf(c.pod.Spec.Tolerations) != c.want {
			t.Errorf("%s: tolerations are %q (%v), want %q",
				name, tolerationsOf(c.pod.Spec.Tolerations), err, c.want)
		}
	}
}
