package volumebinding

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/reference"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// noProvisioner is the provisioner of classes whose volumes are made by hand.
const noProvisioner = "kubernetes.io/no-provisioner"

// setDefaultClass gives a claim without a class the default class, and reports whether it did.
func (c *controller) setDefaultClass(
	ctx context.Context, claim *corev1.PersistentVolumeClaim,
) (bool, error) {
	classes, err := c.classes.List(labels.Everything())
	if err != nil {
		return false, err
	}
	var chosen *storagev1.StorageClass
	for _, class := range classes {
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" &&
			(chosen == nil || older(chosen, class)) {
			chosen = class
		}
	}
	if chosen == nil && len(classes) == 0 && c.makesClass {
		if chosen, err = c.makeClass(ctx); err != nil {
			return false, err
		}
	}
	if chosen == nil {
		return false, nil
	}
	changed := claim.DeepCopy()
	changed.Spec.StorageClassName = &chosen.Name
	_, err = c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, changed,
		metav1.UpdateOptions{})
	return true, loop.IgnoreNotFound(err)
}

// older reports whether b is the default rather than a: the younger one is.
func older(a, b *storagev1.StorageClass) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.Name < a.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// makeClass makes the default class. It returns nil if there is another class, which the informer
// does not have yet.
func (c *controller) makeClass(ctx context.Context) (*storagev1.StorageClass, error) {
	others, err := c.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(others.Items) > 0 {
		return nil, err
	}
	class, err := c.Client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:        Class,
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner:       Provisioner,
		ReclaimPolicy:     ptr.To(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return c.Client.StorageV1().StorageClasses().Get(ctx, Class, metav1.GetOptions{})
	}
	return class, err
}

// provision makes a volume for a claim, or asks its provisioner to make one.
func (c *controller) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	class, err := c.classOf(claim)
	if err != nil {
		return err
	}
	switch {
	case class == nil && c.makesClass && volume.GetPersistentVolumeClaimClass(claim) == Class:
		if classes, err := c.classes.List(labels.Everything()); err != nil || len(classes) > 0 {
			break
		}
		_, err := c.makeClass(ctx)
		return err
	case class == nil:
	case class.Provisioner == noProvisioner:
		c.tell(claim, corev1.EventTypeNormal, "FailedBinding",
			"no persistent volumes available for this claim and no storage class is set")
		return nil
	case class.Provisioner == Provisioner:
		return c.makeVolume(ctx, claim, class)
	default:
		return c.askProvisioner(ctx, claim, class.Provisioner)
	}
	c.tell(claim, corev1.EventTypeWarning, "ProvisioningFailed",
		"storageclass.storage.k8s.io %q not found", volume.GetPersistentVolumeClaimClass(claim))
	return nil
}

// askProvisioner tells an external provisioner, which watches claims, that it is to make a volume.
func (c *controller) askProvisioner(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, provisioner string,
) error {
	if claim.Annotations[volume.AnnStorageProvisioner] != provisioner {
		asked := claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&asked.ObjectMeta, volume.AnnStorageProvisioner, provisioner)
		metav1.SetMetaDataAnnotation(&asked.ObjectMeta, volume.AnnBetaStorageProvisioner, provisioner)
		_, err := c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, asked,
			metav1.UpdateOptions{})
		return loop.IgnoreNotFound(err)
	}
	c.tell(claim, corev1.EventTypeNormal, "ExternalProvisioning",
		"Waiting for a volume to be created either by the external provisioner '%s' or manually by the "+
			"system administrator. If volume creation is delayed, please verify that the provisioner is "+
			"running and correctly registered.", provisioner)
	return nil
}

// makeVolume makes a volume of the simulated provisioner. Its name says for which claim it is, so
// that there is only one.
func (c *controller) makeVolume(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) error {
	ref, err := reference.GetReference(scheme.Scheme, claim)
	if err != nil {
		return err
	}
	name := "pvc-" + string(claim.UID)
	v, err := c.Client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{volume.AnnDynamicallyProvisioned: Provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			AccessModes: claim.Spec.AccessModes,
			VolumeMode:  claim.Spec.VolumeMode,
			ClaimRef:    ref,
			PersistentVolumeReclaimPolicy: ptr.Deref(
				class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			StorageClassName:          class.Name,
			VolumeAttributesClassName: claim.Spec.VolumeAttributesClassName,
			MountOptions:              class.MountOptions,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: Provisioner, VolumeHandle: name},
			},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // the informer is about to tell
	}
	if err != nil {
		return err
	}
	c.tell(claim, corev1.EventTypeNormal, "ProvisioningSucceeded",
		"Successfully provisioned volume %s using %s", name, Provisioner)
	return c.bind(ctx, v, claim)
}
