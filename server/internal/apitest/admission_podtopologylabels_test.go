package apitest

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestAdmissionPodTopologyLabels(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	p := newPlugin(t, "PodTopologyLabels", client)
	topology := map[string]string{
		"topology.kubernetes.io/zone":   "z",
		"topology.kubernetes.io/region": "r",
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"kubernetes.io/os": "linux"}},
	}
	maps.Copy(node.Labels, topology)
	must(client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}))(t)
	binding := func(kind, name string) *corev1.Binding {
		return &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"},
			Target:     corev1.ObjectReference{Kind: kind, Name: name},
		}
	}
	on := func(name string) *corev1.Pod {
		return newPod(func(p *corev1.Pod) { p.Spec.NodeName = name })
	}
	labelled := on("n")
	labelled.Labels = map[string]string{"topology.kubernetes.io/zone": "elsewhere"}
	for name, c := range map[string]struct {
		resource string
		obj      interface {
			runtime.Object
			metav1.Object
		}
		old  runtime.Object
		want map[string]string
	}{
		"bound":              {"pods/binding", binding("Node", "n"), nil, topology},
		"bound to nothing":   {"pods/binding", binding("Node", "none"), nil, nil},
		"bound without kind": {"pods/binding", binding("", "n"), nil, nil},
		"bound elsewhere":    {"pods/binding", binding("Pod", "n"), nil, nil},
		"on a node":          {"pods", on("n"), nil, topology},
		"says it itself":     {"pods", labelled, nil, topology},
		"on no node":         {"pods", on(""), nil, nil},
		"updated":            {"pods", on("n"), on("n"), nil},
	} {
		if err := ask(t, p, c.resource, c.obj, c.old); err != nil ||
			!maps.Equal(c.obj.GetLabels(), c.want) {
			t.Errorf("%s: labels are %v (%v), want %v", name, c.obj.GetLabels(), err, c.want)
		}
	}
}
