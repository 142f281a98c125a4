package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAdmissionPodTolerationRestriction(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	const given, allowed = "scheduler.alpha.kubernetes.io/defaultTolerations",
		"scheduler.alpha.kubernetes.io/tolerationsWhitelist"
	for name, annotations := range map[string]map[string]string{
		"plain": nil,
		"given": {given: `[{"key":"a","operator":"Exists"}]`},
		"none":  {given: `[]`, allowed: `[]`},
		"restricted": {
			given: `[{"key":"a","operator":"Exists"}]`,
			allowed: `[{"key":"a","operator":"Exists"},
				{"key":"b","operator":"Exists","effect":"NoSchedule"}]`,
		},
		"strict": {
			given:   `[{"key":"a","operator":"Exists"}]`,
			allowed: `[{"key":"b","operator":"Exists"}]`,
		},
		"wrong": {given: `{`},
	} {
		must(client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		}, metav1.CreateOptions{}))(t)
	}
	p, err := configuredPlugin("PodTolerationRestriction",
		`{"apiVersion":"podtolerationrestriction.admission.k8s.io/v1alpha1","kind":"Configuration",
		"default":[{"key":"usual","operator":"Exists"}],
		"whitelist":[{"key":"usual","operator":"Exists"},
		{"key":"node.kubernetes.io/memory-pressure","operator":"Exists"}]}`, client)
	if err != nil {
		t.Fatal(err)
	}
	exists := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	whole := func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities("memory", "1Mi")}
	}
	const pressure = "node.kubernetes.io/memory-pressure=:NoSchedule"
	for name, c := range map[string]struct {
		namespace string
		change    []func(*corev1.Pod)
		// want is "-" if the pod is rejected.
		want string
	}{
		"cluster's default": {"plain", nil, "usual=:"},
		"not the cluster's": {"plain", []func(*corev1.Pod){tolerating(exists("x", ""))}, "-"},
		"namespace's":       {"restricted", nil, "a=:"},
		"cluster's list":    {"given", nil, "-"},
		"part of an allowed one": {
			"restricted", []func(*corev1.Pod){tolerating(exists("b", "NoSchedule"))}, "b=:NoSchedule a=:",
		},
		"more than an allowed one": {
			"restricted", []func(*corev1.Pod){tolerating(exists("b", ""))}, "-",
		},
		"covered": {
			"none", []func(*corev1.Pod){tolerating(exists("x", ""), exists("x", "NoSchedule"))}, "x=:",
		},
		"none":                   {"none", nil, ""},
		"given, but not allowed": {"strict", nil, "-"},
		"some memory":            {"none", []func(*corev1.Pod){requests("memory", "1Mi")}, pressure},
		"some cpu":               {"none", []func(*corev1.Pod){limits("cpu", "1")}, pressure},
		"pod level":              {"none", []func(*corev1.Pod){whole}, pressure},
		"neither cpu nor memory": {
			"none", []func(*corev1.Pod){requests("example.com/gpu", "1", "ephemeral-storage", "1Gi")}, "",
		},
		"pressure is not allowed": {"restricted", []func(*corev1.Pod){requests("memory", "1Mi")}, "-"},
		"pressure with the default": {
			"plain", []func(*corev1.Pod){requests("memory", "1Mi")}, "usual=: " + pressure,
		},
		"wrong annotation": {"wrong", nil, "-"},
	} {
		pod := newPod(append(c.change, func(p *corev1.Pod) { p.Namespace = c.namespace })...)
		err := ask(t, p, "pods", pod, nil)
		if c.want == "-" {
			if err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
				t.Errorf("%s: got %v, want an error without a reason", name, err)
			}
		} else if got := tolerationsOf(pod.Spec.Tolerations); err != nil || got != c.want {
			t.Errorf("%s: tolerations are %q (%v), want %q", name, got, err, c.want)
		}
	}
	updated := newPod(func(p *corev1.Pod) { p.Namespace = "given" })
	if err := ask(t, p, "pods", updated, newPod()); err != nil || len(updated.Spec.Tolerations) != 0 {
		t.Errorf("an update added the tolerations %q (%v)", tolerationsOf(updated.Spec.Tolerations), err)
	}
}
