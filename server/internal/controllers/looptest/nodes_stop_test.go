package looptest

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestNodesTakeTimeToStopPods sees pods terminating before they are gone. Of several, the quickest
// counts.
func TestNodesTakeTimeToStopPods(t *testing.T) {
	t.Parallel()
	client := nodesOne(t)
	for name, test := range map[string]struct {
		annotations map[string]string
		pods        int
		least       time.Duration
	}{
		"default": {nil, 20, 10 * time.Millisecond},
		"steered": {map[string]string{"kinproc.dev/stop-delay": "1500ms"}, 1, 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			quickest := time.Hour
			for range test.pods {
				quickest = min(quickest, nodesStop(t, client, name, test.annotations))
			}
			if quickest < test.least {
				t.Errorf("a pod was gone after %v, want at least %v", quickest, test.least)
			}
		})
	}
}

// nodesStop creates a pod, deletes it once it runs, and returns how long it takes until it is gone.
func nodesStop(
	t *testing.T, client kubernetes.Interface, name string, annotations map[string]string,
) time.Duration {
	t.Helper()
	pods := client.CoreV1().Pods("default")
	workloadtest.Must(pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{}))(t)
	p := workloadtest.Await(t, name+" runs", func(ctx context.Context) (*corev1.Pod, error) {
		return pods.Get(ctx, name, metav1.GetOptions{})
	}, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	changes := workloadtest.Must(pods.Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + name, ResourceVersion: p.ResourceVersion,
	}))(t)
	defer changes.Stop()
	before := time.Now()
	workloadtest.OK(t, pods.Delete(t.Context(), name, metav1.DeleteOptions{}))
	terminating := false
	for event := range changes.ResultChan() {
		if event.Type == watch.Deleted {
			if !terminating {
				t.Errorf("nobody saw %s terminating", name)
			}
			return time.Since(before)
		}
		terminating = terminating || event.Object.(*corev1.Pod).DeletionTimestamp != nil
	}
	t.Fatalf("the watch ended before %s was gone", name)
	return 0
}
