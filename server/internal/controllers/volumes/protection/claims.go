package protection

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// ClaimsName is the name of the loop in kube-controller-manager.
const ClaimsName = "persistentvolumeclaim-protection-controller"

// Claims is the loop that removes the finalizer from persistent volume claims that no pod uses, and
// says since when no pod has used the others.
func Claims() loop.Loop {
	return loop.Loop{
		Name: ClaimsName, Alias: "pvc-protection",
		Purpose: "protects PersistentVolumeClaims that pods use, and reports unused ones",
		After:   []schema.GroupResource{corev1.Resource("persistentvolumeclaims")},
		Begin: saysUnused(begin(func(c *loop.Controller) protection[*corev1.PersistentVolumeClaim] {
			return protection[*corev1.PersistentVolumeClaim]{
				resource:  corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"),
				finalizer: "kubernetes.io/pvc-protection",
				objects:   c.Informer(&corev1.PersistentVolumeClaim{}),
				users:     []runtime.Object{&corev1.Pod{}},
				used: func(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
					return claimUsed(ctx, c.Client, claim)
				},
			}
		})),
	}
}

// claimUsed asks the server, because the informer may not have the newest pods.
func claimUsed(
	ctx context.Context, client kubernetes.Interface, claim *corev1.PersistentVolumeClaim,
) (bool, error) {
	pods, err := client.CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	for i := range pods.Items {
		if podUses(&pods.Items[i], claim) {
			return true, nil
		}
	}
	return false, nil
}

// podUses reports whether a pod uses a claim. A pod without a node does not, because kubelets do
// not start a pod whose claim is being deleted. A pod that has ended uses its claims until it is
// deleted, because its volumes may still be mounted. Only an ephemeral claim that was created for
// the pod is no longer used once the pod has been shut down.
func podUses(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	shutDown := pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, -1) == 0
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name {
			return true
		}
		if v.Ephemeral != nil && !shutDown && ephemeral.VolumeClaimName(pod, v) == claim.Name &&
			ephemeral.VolumeIsForPod(pod, claim) == nil {
			return true
		}
	}
	return false
}
