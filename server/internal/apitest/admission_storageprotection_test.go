package apitest

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestAdmissionStorageObjectInUseProtection(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, "StorageObjectInUseProtection", nil)
	own := metav1.ObjectMeta{Name: "x", Finalizers: []string{"example.com/own"}}
	for _, c := range []struct {
		resource string
		obj      interface {
			runtime.Object
			metav1.Object
		}
		want []string
	}{
		{"persistentvolumes", &corev1.PersistentVolume{ObjectMeta: own}, []string{
			"example.com/own", "kubernetes.io/pv-protection",
		}},
		{"persistentvolumeclaims", &corev1.PersistentVolumeClaim{}, []string{
			"kubernetes.io/pvc-protection",
		}},
		{"persistentvolumeclaims", &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"kubernetes.io/pvc-protection"}},
		},
			[]string{"kubernetes.io/pvc-protection"}},
		{"volumeattributesclasses.storage.k8s.io", &storagev1.VolumeAttributesClass{}, []string{
			"kubernetes.io/vac-protection",
		}},
		{"configmaps", &corev1.ConfigMap{}, nil},
	} {
		if err := ask(t, p, c.resource, c.obj, nil); err != nil ||
			!slices.Equal(c.obj.GetFinalizers(), c.want) {
			t.Errorf("%s: finalizers are %v (%v), want %v", c.resource, c.obj.GetFinalizers(), err, c.want)
		}
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := ask(t, p, "persistentvolumeclaims", claim,
		&corev1.PersistentVolumeClaim{}); err != nil || len(claim.Finalizers) > 0 {
		t.Errorf("an update added %v (%v)", claim.Finalizers, err)
	}
}
