package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// storageProtection (StorageObjectInUseProtection) adds the finalizers that protect volumes, claims
// and volume attributes classes while they are in use. Controllers remove the finalizers.
type storageProtection struct{ *admission.Handler }

// protected are the finalizers of the protected resources.
var protected = map[schema.GroupResource]string{
	corev1.Resource("persistentvolumes"):          "kubernetes.io/pv-protection",
	persistentVolumeClaims:                        "kubernetes.io/pvc-protection",
	storagev1.Resource("volumeattributesclasses"): "kubernetes.io/vac-protection",
}

func newStorageProtection() admission.Interface {
	return storageProtection{admission.NewHandler(admission.Create)}
}

func (storageProtection) Admit(
	_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	finalizer, ok := protected[a.GetResource().GroupResource()]
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	obj, err := plugin.Cast[metav1.Object](a.GetObject())
	if err != nil {
		return err
	}
	if !slices.Contains(obj.GetFinalizers(), finalizer) {
		obj.SetFinalizers(append(obj.GetFinalizers(), finalizer))
	}
	return nil
}
