package nodeauthorizer

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kinproc/kinproc/server/internal/podreferences"
)

// usedByPods reports whether a pod on the node refers to the object. It ignores mirror pods,
// because a kubelet can create them itself.
func (a *Authorizer) usedByPods(
	ctx context.Context, node, namespace, resource, name string,
) (bool, error) {
	if namespace == "" || name == "" {
		return false, nil
	}
	pods, err := a.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("spec.nodeName", node).String(),
		ResourceVersion: cached.ResourceVersion,
	})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
		_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		return !mirror && p.Spec.NodeName == node && podreferences.Has(&p, resource, name)
	}), nil
}
