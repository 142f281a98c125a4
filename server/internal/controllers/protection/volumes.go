package protection

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// VolumesName is the name of the controller in kube-controller-manager.
const VolumesName = "persistentvolume-protection-controller"

// Volumes returns a controller that removes the finalizer from persistent volumes that are not
// bound to a claim.
func Volumes(d Dependencies) *Controller[*corev1.PersistentVolume] {
	return &Controller[*corev1.PersistentVolume]{
		Dependencies: d,
		name:         VolumesName,
		resource:     corev1.SchemeGroupVersion.WithResource("persistentvolumes"),
		finalizer:    "kubernetes.io/pv-protection",
		objects:      volumes,
		used: func(_ context.Context, volume *corev1.PersistentVolume) (bool, error) {
			return volume.Status.Phase == corev1.VolumeBound, nil
		},
	}
}

func volumes(f informers.SharedInformerFactory) cache.SharedIndexInformer {
	return f.Core().V1().PersistentVolumes().Informer()
}
