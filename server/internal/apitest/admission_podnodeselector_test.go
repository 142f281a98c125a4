package apitest

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAdmissionPodNodeSelector(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	for name, annotations := range map[string]map[string]string{
		"annotated": {"scheduler.alpha.kubernetes.io/node-selector": "zone=a"},
		"empty":     {"scheduler.alpha.kubernetes.io/node-selector": ""},
		"plain":     nil,
		"listed":    nil,
		"wrong":     {"scheduler.alpha.kubernetes.io/node-selector": "=="},
	} {
		must(client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		}, metav1.CreateOptions{}))(t)
	}
	p, err := configuredPlugin("PodNodeSelector",
		"podNodeSelectorPluginConfig:\n  clusterDefaultNodeSelector: pool=usual\n"+
			"  listed: pool=usual,zone=b\n", client)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		namespace string
		has, want map[string]string
	}{
		"annotation": {"annotated", nil, map[string]string{"zone": "a"}},
		"annotation and own": {"annotated", map[string]string{"disk": "d"}, map[string]string{
			"zone": "a",
			"disk": "d",
		}},
		"annotation and the same": {
			"annotated", map[string]string{"zone": "a"}, map[string]string{"zone": "a"},
		},
		"contradicts": {"annotated", map[string]string{"zone": "b"}, nil},
		"none by annotation": {
			"empty", map[string]string{"zone": "b"}, map[string]string{"zone": "b"},
		},
		"default":                 {"plain", nil, map[string]string{"pool": "usual"}},
		"contradicts the default": {"plain", map[string]string{"pool": "other"}, nil},
		"among the listed": {"listed", map[string]string{"zone": "b"}, map[string]string{
			"pool": "usual",
			"zone": "b",
		}},
		"a listed key, other value": {"listed", map[string]string{"zone": "c"}, nil},
		"not among the listed":      {"listed", map[string]string{"disk": "d"}, nil},
	} {
		pod := newPod(func(p *corev1.Pod) { p.Namespace, p.Spec.NodeSelector = c.namespace, c.has })
		err := ask(t, p, "pods", pod, nil)
		checkRefused(t, name, err, c.want == nil)
		if err == nil && !maps.Equal(pod.Spec.NodeSelector, c.want) {
			t.Errorf("%s: node selector is %v, want %v", name, pod.Spec.NodeSelector, c.want)
		}
	}
	if err := ask(t, p, "pods", newPod(func(p *corev1.Pod) {
		p.Namespace = "wrong"
	}), nil); err == nil || apierrors.IsForbidden(err) {
		t.Errorf("an invalid annotation: got %v, want an error other than Forbidden", err)
	}
	if _, err := configuredPlugin("PodNodeSelector", "{", client); err == nil {
		t.Error("an invalid configuration was accepted")
	}
}
