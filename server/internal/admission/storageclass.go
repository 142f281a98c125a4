package admission

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-helpers/storage/volume"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// The annotations that mark a storage class as the default. The beta one is older.
const (
	isDefaultStorageClass     = "storageclass.kubernetes.io/is-default-class"
	isDefaultStorageClassBeta = "storageclass.beta.kubernetes.io/is-default-class"
)

// defaultStorageClass (DefaultStorageClass) sets the default storage class in claims that do not
// name a class.
type defaultStorageClass struct {
	*admission.Handler
	plugin.WantsClient
}

func newDefaultStorageClass() admission.Interface {
	return &defaultStorageClass{Handler: admission.NewHandler(admission.Create)}
}

func (p *defaultStorageClass) Admit(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	claim, ok, err := plugin.Object[*corev1.PersistentVolumeClaim](a, persistentVolumeClaims)
	if !ok || volume.PersistentVolumeClaimHasClass(claim) {
		return err
	}
	classes, err := p.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	var chosen metav1.Object
	for i := range classes.Items {
		c := &classes.Items[i]
		if c.Annotations[isDefaultStorageClass] == "true" ||
			c.Annotations[isDefaultStorageClassBeta] == "true" {
			chosen = newer(chosen, c)
		}
	}
	if chosen != nil {
		claim.Spec.StorageClassName = new(chosen.GetName())
	}
	return nil
}

// newer returns the more recently created of two default classes or, if they were created at the
// same time, the one whose name sorts first. If a is nil, it returns b.
func newer(a, b metav1.Object) metav1.Object {
	if a == nil {
		return b
	}
	if c := a.GetCreationTimestamp().Time.Compare(b.GetCreationTimestamp().Time); c > 0 ||
		c == 0 && strings.Compare(a.GetName(), b.GetName()) < 0 {
		return a
	}
	return b
}
