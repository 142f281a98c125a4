package protection

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// VolumesName is the name of the loop in kube-controller-manager.
const VolumesName = "persistentvolume-protection-controller"

// Volumes is the loop that removes the finalizer from persistent volumes that are not bound to a
// claim.
func Volumes() loop.Loop {
	return loop.Loop{
		Name: VolumesName, Alias: "pv-protection",
		Purpose: "protects PersistentVolumes that are bound to claims",
		After:   []schema.GroupResource{corev1.Resource("persistentvolumes")},
		Begin: begin(func(c *loop.Controller) protection[*corev1.PersistentVolume] {
			return protection[*corev1.PersistentVolume]{
				resource:  corev1.SchemeGroupVersion.WithResource("persistentvolumes"),
				finalizer: "kubernetes.io/pv-protection",
				objects:   c.Informer(&corev1.PersistentVolume{}),
				used: func(_ context.Context, volume *corev1.PersistentVolume) (bool, error) {
					return volume.Status.Phase == corev1.VolumeBound, nil
				},
			}
		}),
	}
}
