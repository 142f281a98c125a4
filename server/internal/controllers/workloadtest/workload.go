package workloadtest

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Template returns a template of pods with one container and the image i:1. The pods are deleted
// without delay.
func Template(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers:                    []corev1.Container{{Name: "c", Image: "i:1"}},
		},
	}
}

// API is the client of a kind in a namespace.
type API[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Patch(
		context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string,
	) (T, error)
}

// Workload is an object that makes pods from a [Template], in a control plane under test.
type Workload[T metav1.Object] struct {
	testing.TB
	Client    kubernetes.Interface
	Namespace string
	API       API[T] // of the kind in the namespace
	// App is the name of the object, and the label app of its pods.
	App string
}

// Create creates the object.
func (w Workload[T]) Create(object T) {
	w.Helper()
	Must(w.API.Create(w.Context(), object, metav1.CreateOptions{}))(w)
}

// Patch applies a strategic merge patch to the object.
func (w Workload[T]) Patch(patch string) {
	w.Helper()
	Must(w.API.Patch(w.Context(), w.App, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{}))(w)
}

// Image changes the image of the template.
func (w Workload[T]) Image(image string) {
	w.Helper()
	w.Patch(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"` + image + `"}]}}}}`)
}

// Await gets the object until it is as wanted.
func (w Workload[T]) Await(what string, wanted func(T) bool) T {
	w.Helper()
	return Await(w, what, func(ctx context.Context) (T, error) {
		return w.API.Get(ctx, w.App, metav1.GetOptions{})
	}, wanted)
}

// Pods returns the pods as place=image in order, where place is what tells the pods apart.
func (w Workload[T]) Pods(place func(*corev1.Pod) string) []string {
	w.Helper()
	var found []string
	for _, pod := range Pods(w, w.Client, w.Namespace, "app="+w.App) {
		found = append(found, place(&pod)+"="+pod.Spec.Containers[0].Image)
	}
	slices.Sort(found)
	return found
}

// AwaitPods waits until [Workload.Pods] are the wanted ones.
func (w Workload[T]) AwaitPods(place func(*corev1.Pod) string, want ...string) {
	w.Helper()
	Await(w, "the pods "+strings.Join(want, " "),
		func(context.Context) ([]string, error) { return w.Pods(place), nil },
		func(got []string) bool { return slices.Equal(got, want) })
}
