package apitest

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// addNode creates a node with two CPUs that declares the given features.
func addNode(t *testing.T, client kubernetes.Interface, name, os string, features ...string) {
	t.Helper()
	node := must(client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: os}},
	}, metav1.CreateOptions{}))(t)
	node.Status.Allocatable = quantities("cpu", "2", "memory", "1Gi")
	node.Status.DeclaredFeatures = features
	must(client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}))(t)
}

// resized returns a pod with a modified spec and with the generation that the strategy would set.
func resized(node string, change ...func(*corev1.Pod)) *corev1.Pod {
	return newPod(append(change, func(p *corev1.Pod) { p.Spec.NodeName, p.Generation = node, 2 })...)
}

func TestAdmissionPodResizeValidator(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	addNode(t, client, "linux", "linux")
	addNode(t, client, "windows", "windows")
	p := newPlugin(t, "PodResizeValidator", client)
	for name, c := range map[string]struct {
		resource string
		pod      *corev1.Pod
		// cause is the expected cause of the refusal: "" for no refusal, "-" for a refusal without
		// a cause.
		cause metav1.CauseType
	}{
		"fits":       {"pods/resize", resized("linux", requests("cpu", "2", "memory", "1Gi")), ""},
		"cpu":        {"pods/resize", resized("linux", requests("cpu", "2001m")), "NodeCapacity"},
		"memory":     {"pods/resize", resized("linux", requests("memory", "2Gi")), "NodeCapacity"},
		"windows":    {"pods/resize", resized("windows"), "UnsupportedPlatform"},
		"no node":    {"pods/resize", resized("none"), "-"},
		"not on one": {"pods/resize", resized("", requests("cpu", "9")), ""},
		"not resized": {
			"pods/resize", newPod(func(p *corev1.Pod) { p.Spec.NodeName, p.Generation = "windows", 1 }), "",
		},
		"pod itself": {"pods", resized("windows"), ""},
	} {
		err := ask(t, p, c.resource, c.pod, newPod(func(p *corev1.Pod) { p.Generation = 1 }))
		checkRefused(t, name, err, c.cause != "")
		var status *apierrors.StatusError
		if errors.As(err, &status) && c.cause != "-" {
			if causes := status.ErrStatus.Details.Causes; len(causes) != 1 || causes[0].Type != c.cause {
				t.Errorf("%s: causes are %v, want %s", name, causes, c.cause)
			}
		}
	}
}
