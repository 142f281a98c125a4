package volumebinding

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/storage/volume"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

func (c *controller) syncClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	name := claim.Spec.VolumeName
	completed := claim.Annotations[volume.AnnBindCompleted] != ""
	switch {
	case name == "" && completed:
		return c.lose(ctx, claim, "ClaimLost",
			"Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	case name == "":
		return c.findVolume(ctx, claim)
	}
	v, err := c.volumes.Get(name)
	if loop.IgnoreNotFound(err) != nil {
		return err
	}
	switch {
	case err != nil && completed:
		return c.lose(ctx, claim, "ClaimLost",
			"Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case err != nil:
		return nil // the volume may come
	case v.Spec.ClaimRef == nil || volume.IsVolumeBoundToClaim(v, claim):
		if why := mismatch(v, claim); why != "" && !completed {
			c.tell(claim, corev1.EventTypeWarning, "VolumeMismatch",
				"Cannot bind to requested volume %q: %s", v.Name, why)
			return nil
		}
		return c.bind(ctx, v, claim)
	case completed:
		return c.lose(ctx, claim, "ClaimMisbound", "Two claims are bound to the same volume, "+
			"this one is bound incorrectly")
	}
	c.tell(claim, corev1.EventTypeWarning, "FailedBinding",
		"volume %q already bound to a different claim.", v.Name)
	return nil
}

// mismatch returns why a volume that a claim names is not what the claim asks for.
func mismatch(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) string {
	asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	has := v.Spec.Capacity[corev1.ResourceStorage]
	switch {
	case has.Cmp(asked) < 0:
		return "requested PV is too small"
	case volume.GetPersistentVolumeClass(v) != volume.GetPersistentVolumeClaimClass(claim):
		return "storageClassName does not match"
	case volume.CheckVolumeModeMismatches(&claim.Spec, &v.Spec):
		return "incompatible volumeMode"
	case !volume.CheckAccessModes(claim, v):
		return "incompatible accessMode"
	}
	return ""
}

// lose says that the volume of a claim is gone.
func (c *controller) lose(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, reason, message string,
) error {
	if claim.Status.Phase == corev1.ClaimLost {
		return nil
	}
	lost := claim.DeepCopy()
	lost.Status = corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimLost, Conditions: lost.Status.Conditions,
	}
	_, err := c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, lost,
		metav1.UpdateOptions{})
	if err == nil {
		c.tell(claim, corev1.EventTypeWarning, reason, "%s", message)
	}
	return loop.IgnoreNotFound(err)
}

// findVolume binds a claim to a volume that there is, or has one provisioned.
func (c *controller) findVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.DeletionTimestamp != nil {
		return nil
	}
	if !volume.PersistentVolumeClaimHasClass(claim) {
		// The default class may be younger than the claim.
		if done, err := c.setDefaultClass(ctx, claim); done || err != nil {
			return err
		}
	}
	delayed, err := volume.IsDelayBindingMode(claim, c.classes)
	if err != nil {
		return err
	}
	all, err := c.volumes.List(labels.Everything())
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(v *corev1.PersistentVolume) bool {
		return !volume.IsVolumeBoundToClaim(v, claim) && !volume.CheckAccessModes(claim, v)
	})
	slices.SortFunc(all, func(a, b *corev1.PersistentVolume) int {
		return strings.Compare(a.Name, b.Name)
	})
	v, err := volume.FindMatchingVolume(claim, all, nil, nil, delayed, true)
	switch {
	case err != nil:
		return err
	case v != nil:
		return c.bind(ctx, v, claim)
	case delayed && !volume.IsDelayBindingProvisioning(claim):
		c.tell(claim, corev1.EventTypeNormal, "WaitForFirstConsumer",
			"waiting for first consumer to be created before binding")
		return nil
	case volume.GetPersistentVolumeClaimClass(claim) != "":
		return c.provision(ctx, claim)
	}
	c.tell(claim, corev1.EventTypeNormal, "FailedBinding",
		"no persistent volumes available for this claim and no storage class is set")
	return nil
}

// bind binds a volume and a claim to each other. Each step is skipped if it has been done before,
// so that a binding that was interrupted is completed.
func (c *controller) bind(
	ctx context.Context, found *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim,
) error {
	v, dirty, err := volume.GetBindVolumeToClaim(found, claim)
	if err != nil {
		return err
	}
	if dirty {
		v, err = c.Client.CoreV1().PersistentVolumes().Update(ctx, v, metav1.UpdateOptions{})
		if err != nil {
			return loop.IgnoreNotFound(err)
		}
	}
	if err := c.setPhase(ctx, v, corev1.VolumeBound); err != nil {
		return err
	}
	client := c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	bound := claim.DeepCopy()
	if bound.Spec.VolumeName == "" {
		bound.Spec.VolumeName = v.Name
		metav1.SetMetaDataAnnotation(&bound.ObjectMeta, volume.AnnBoundByController, "yes")
	}
	metav1.SetMetaDataAnnotation(&bound.ObjectMeta, volume.AnnBindCompleted, "yes")
	if !equality.Semantic.DeepEqual(claim, bound) {
		if bound, err = client.Update(ctx, bound, metav1.UpdateOptions{}); err != nil {
			return loop.IgnoreNotFound(err)
		}
	}
	before := bound.Status.DeepCopy()
	bound.Status.Phase = corev1.ClaimBound
	bound.Status.AccessModes = v.Spec.AccessModes
	if before.Phase != corev1.ClaimBound { // afterwards, whoever resizes it says how large it is
		bound.Status.Capacity = v.Spec.Capacity
		bound.Status.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
	}
	if equality.Semantic.DeepEqual(before, &bound.Status) {
		return nil
	}
	_, err = client.UpdateStatus(ctx, bound, metav1.UpdateOptions{})
	return loop.IgnoreNotFound(err)
}
