package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// claimResize (PersistentVolumeClaimResize) allows a claim to grow only if it is bound and its
// storage class allows volume expansion.
type claimResize struct {
	*admission.Handler
	plugin.WantsClient
}

func newClaimResize() admission.Interface {
	return &claimResize{Handler: admission.NewHandler(admission.Update)}
}

func (p *claimResize) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	claim, ok, err := plugin.Object[*corev1.PersistentVolumeClaim](a, persistentVolumeClaims)
	if !ok {
		return err
	}
	old, err := plugin.Cast[*corev1.PersistentVolumeClaim](a.GetOldObject())
	if err != nil {
		return err
	}
	if size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; size.Cmp(
		old.Spec.Resources.Requests[corev1.ResourceStorage]) <= 0 {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		return plugin.Forbid(a, "the claim is not bound: only bound claims can be expanded")
	}
	name := volume.GetPersistentVolumeClaimClass(old)
	if name == "" {
		return plugin.Forbid(a, "the claim has no storage class, so it cannot be expanded")
	}
	class, err := p.Client.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return admission.NewForbidden(a, err)
	}
	if err != nil || !ptr.Deref(class.AllowVolumeExpansion, false) {
		return plugin.Forbid(a, "the claim's storage class %q does not allow volume expansion", name)
	}
	return nil
}
