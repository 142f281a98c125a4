package protection

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// ClassesName is the name of the loop in kube-controller-manager.
const ClassesName = "volumeattributesclass-protection-controller"

// Classes is the loop that removes the finalizer from volume attributes classes that no claim or
// volume has or is about to get.
func Classes() loop.Loop {
	return loop.Loop{
		Name: ClassesName, Alias: "vac-protection",
		Purpose: "protects VolumeAttributesClasses that are in use",
		After:   []schema.GroupResource{storagev1.Resource("volumeattributesclasses")},
		Begin: begin(func(c *loop.Controller) protection[*storagev1.VolumeAttributesClass] {
			return protection[*storagev1.VolumeAttributesClass]{
				resource:  storagev1.SchemeGroupVersion.WithResource("volumeattributesclasses"),
				finalizer: "kubernetes.io/vac-protection",
				objects:   c.Informer(&storagev1.VolumeAttributesClass{}),
				users:     []runtime.Object{&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}},
				used: func(ctx context.Context, class *storagev1.VolumeAttributesClass) (bool, error) {
					return classUsed(ctx, c.Client, class.Name)
				},
			}
		}),
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
