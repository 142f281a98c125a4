package protection

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// ClassesName is the name of the controller in kube-controller-manager.
const ClassesName = "volumeattributesclass-protection-controller"

// Classes returns a controller that removes the finalizer from volume attributes classes that no
// claim or volume has or is about to get.
func Classes(d Dependencies) *Controller[*storagev1.VolumeAttributesClass] {
	return &Controller[*storagev1.VolumeAttributesClass]{
		Dependencies: d,
		name:         ClassesName,
		resource:     storagev1.SchemeGroupVersion.WithResource("volumeattributesclasses"),
		finalizer:    "kubernetes.io/vac-protection",
		objects: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Storage().V1().VolumeAttributesClasses().Informer()
		},
		users: []func(informers.SharedInformerFactory) cache.SharedIndexInformer{claims, volumes},
		used: func(ctx context.Context, class *storagev1.VolumeAttributesClass) (bool, error) {
			return classUsed(ctx, d.Client, class.Name)
		},
	}
}

func classUsed(ctx context.Context, client kubernetes.Interface, class string) (bool, error) {
	volumes, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	for i := range volumes.Items {
		if ptr.Deref(volumes.Items[i].Spec.VolumeAttributesClassName, "") == class {
			return true, nil
		}
	}
	claims, err := client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	for i := range claims.Items {
		if claimHasClass(&claims.Items[i], class) {
			return true, nil
		}
	}
	return false, nil
}

func claimHasClass(claim *corev1.PersistentVolumeClaim, class string) bool {
	if modify := claim.Status.ModifyVolumeStatus; modify != nil &&
		modify.TargetVolumeAttributesClassName == class {
		return true
	}
	for _, name := range []*string{
		claim.Spec.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName,
	} {
		if ptr.Deref(name, "") == class {
			return true
		}
	}
	return false
}
