package looptest

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestNodesTakeTimeToStopPods sees a pod terminating before it is gone.
func TestNodesTakeTimeToStopPods(t *testing.T) {
	t.Parallel()
	client := nodesOne(t)
	pods := client.CoreV1().Pods("default")
	for name, test := range map[string]struct {
		annotations map[string]string
		least       time.Duration
	}{
		"default": {nil, 10 * time.Millisecond},
		"steered": {map[string]string{"kinproc.dev/stop-delay": "1500ms"}, 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			workloadtest.Must(pods.Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: test.annotations},
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
			var terminating bool
			for event := range changes.ResultChan() {
				if event.Type == watch.Deleted {
					break
				}
				terminating = terminating || event.Object.(*corev1.Pod).DeletionTimestamp != nil
			}
			if took := time.Since(before); !terminating || took < test.least {
				t.Errorf("the pod was terminating: %t; it was gone after %v", terminating, took)
			}
		})
	}
}
