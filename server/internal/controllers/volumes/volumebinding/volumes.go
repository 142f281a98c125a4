package volumebinding

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// syncVolume sets the phase of a volume, and does what its reclaim policy says when its claim is
// gone.
func (c *controller) syncVolume(ctx context.Context, v *corev1.PersistentVolume) error {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" { // it is free, or kept for a claim
		if ref != nil {
			c.addClaim(ref.Namespace, ref.Name)
		}
		return c.setPhase(ctx, v, corev1.VolumeAvailable)
	}
	claim, err := c.claims.PersistentVolumeClaims(ref.Namespace).Get(ref.Name)
	if apierrors.IsNotFound(err) || err == nil && claim.UID != ref.UID {
		// The informer may not have the claim yet.
		claim, err = c.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name,
			metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err) || err == nil && claim.UID != ref.UID:
		if err := c.setPhase(ctx, v, corev1.VolumeReleased); err != nil {
			return err
		}
		return c.reclaim(ctx, v)
	case err != nil:
		return err
	case claim.Spec.VolumeName == "":
		c.addClaim(claim.Namespace, claim.Name) // to complete the binding
		return nil
	case claim.Spec.VolumeName == v.Name:
		if claim.Status.Phase == corev1.ClaimLost {
			c.addClaim(claim.Namespace, claim.Name) // its volume is back
		}
		return c.setPhase(ctx, v, corev1.VolumeBound)
	case provisionedHere(v) &&
		v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return c.reclaim(ctx, v)
	}
	return c.unbind(ctx, v)
}

// setPhase sets the phase of a volume. It changes v, unless v is as it should be.
func (c *controller) setPhase(
	ctx context.Context, v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase,
) error {
	if v.Status.Phase == phase {
		return nil
	}
	changed := v.DeepCopy()
	changed.Status.Phase, changed.Status.Message = phase, ""
	_, err := c.Client.CoreV1().PersistentVolumes().UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	return loop.IgnoreNotFound(err)
}

// unbind frees a volume whose claim has another one.
func (c *controller) unbind(ctx context.Context, v *corev1.PersistentVolume) error {
	free := v.DeepCopy()
	if free.Annotations[volume.AnnBoundByController] != "" {
		free.Spec.ClaimRef = nil
		delete(free.Annotations, volume.AnnBoundByController)
	} else {
		free.Spec.ClaimRef.UID = "" // a user has kept it for a claim of that name
	}
	_, err := c.Client.CoreV1().PersistentVolumes().Update(ctx, free, metav1.UpdateOptions{})
	return loop.IgnoreNotFound(err)
}

func provisionedHere(v *corev1.PersistentVolume) bool {
	return v.Annotations[volume.AnnDynamicallyProvisioned] == Provisioner
}

// reclaim deletes a volume that was provisioned here, if that is its policy.
func (c *controller) reclaim(ctx context.Context, v *corev1.PersistentVolume) error {
	if !provisionedHere(v) || v.DeletionTimestamp != nil ||
		v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	volumes := c.Client.CoreV1().PersistentVolumes()
	return loop.IgnoreNotFound(volumes.Delete(ctx, v.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(v.UID)),
	}))
}
