package admission

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-helpers/resource"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// podResize (PodResizeValidator) rejects a resize of a pod that exceeds the allocatable resources
// of its node, or whose node does not run Linux (KEP-1287).
type podResize struct {
	*admission.Handler
	plugin.WantsClient
}

func newPodResize() admission.Interface {
	return &podResize{Handler: admission.NewHandler(admission.Update)}
}

// The causes of a refusal. Clients use them to tell refusals apart.
const (
	nodeCapacity        metav1.CauseType = "NodeCapacity"
	unsupportedPlatform metav1.CauseType = "UnsupportedPlatform"
)

func (p *podResize) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	if !plugin.Is(a, pods, "resize") {
		return nil
	}
	pod, _, err := changedOnNode(a)
	if pod == nil {
		return err
	}
	node, err := nodeOf(ctx, p.Client, a, pod)
	if err != nil {
		return err
	}
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if request := requests[name]; request.Cmp(node.Status.Allocatable[name]) > 0 {
			return forbidBecause(a, nodeCapacity,
				"the pod's %s request of %s exceeds the allocatable amount of node %q", name,
				request.String(), node.Name)
		}
	}
	if node.Labels[corev1.LabelOSStable] != string(corev1.Linux) {
		return forbidBecause(a, unsupportedPlatform,
			"node %q does not run Linux according to its label %s", node.Name, corev1.LabelOSStable)
	}
	return nil
}

// forbidBecause returns a 403 Forbidden error with a cause.
func forbidBecause(
	a admission.Attributes, cause metav1.CauseType, format string, args ...any,
) error {
	err := plugin.Forbid(a, format, args...)
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes,
			metav1.StatusCause{Type: cause})
	}
	return err
}
