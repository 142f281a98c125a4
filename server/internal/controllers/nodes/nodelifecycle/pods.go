package nodelifecycle

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// markPods says that the pods of a node that is not ready are not ready either, so that services
// send no requests there.
func (c *controller) markPods(ctx context.Context, n *corev1.Node) error {
	for _, found := range pods.OnNode(c.pods, n.Name) {
		if !pods.Ready(found) {
			continue
		}
		p := found.DeepCopy()
		ready := pods.Condition(&p.Status, corev1.PodReady)
		ready.Status, ready.LastTransitionTime = corev1.ConditionFalse, metav1.Now()
		ready.ObservedGeneration = p.Generation
		_, err := c.Client.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
		if loop.IgnoreChanged(err) != nil {
			return err
		}
		if err == nil {
			c.Recorder.Event(p, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
		}
	}
	return nil
}
