package looptest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestPodsWithoutNodesTerminate deletes pods that no kubelet has to stop. None is gone at once.
func TestPodsWithoutNodesTerminate(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	pods := client.CoreV1().Pods(namespace)
	quickest := time.Hour
	for range 20 {
		workloadtest.Must(pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{}))(t)
		before := time.Now()
		workloadtest.OK(t, pods.Delete(t.Context(), "p", metav1.DeleteOptions{}))
		quickest = min(quickest, time.Since(before))
	}
	if quickest < time.Millisecond {
		t.Errorf("a pod was gone after %v", quickest)
	}
}
