package nodeauthorizer

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// usedByVolumes reports whether the secret is used by a persistent volume whose claim is used by a
// pod on the node.
func (a *Authorizer) usedByVolumes(
	ctx context.Context, node, namespace, name string,
) (bool, error) {
	if namespace == "" || name == "" {
		return false, nil
	}
	volumes, err := a.client.CoreV1().PersistentVolumes().List(ctx,
		metav1.ListOptions{ResourceVersion: cached.ResourceVersion})
	if err != nil {
		return false, err
	}
	for i := range volumes.Items {
		claim := volumes.Items[i].Spec.ClaimRef
		if claim == nil || !slices.Contains(secretsOf(&volumes.Items[i]),
			corev1.SecretReference{Namespace: namespace, Name: name}) {
			continue
		}
		if own, err := a.usedByPods(ctx, node, claim.Namespace,
			"persistentvolumeclaims", claim.Name); own || err != nil {
			return own, err
		}
	}
	return false, nil
}

// secretsOf returns the secrets that a claimed volume refers to. A reference without a namespace
// refers to the claim's namespace.
func secretsOf(v *corev1.PersistentVolume) []corev1.SecretReference {
	var refs []*corev1.SecretReference
	switch source := v.Spec.PersistentVolumeSource; {
	case source.AzureFile != nil:
		ref := &corev1.SecretReference{Name: source.AzureFile.SecretName}
		if source.AzureFile.SecretNamespace != nil {
			ref.Namespace = *source.AzureFile.SecretNamespace
		}
		refs = append(refs, ref)
	case source.CephFS != nil:
		refs = append(refs, source.CephFS.SecretRef)
	case source.Cinder != nil:
		refs = append(refs, source.Cinder.SecretRef)
	case source.FlexVolume != nil:
		refs = append(refs, source.FlexVolume.SecretRef)
	case source.RBD != nil:
		refs = append(refs, source.RBD.SecretRef)
	case source.ScaleIO != nil:
		refs = append(refs, source.ScaleIO.SecretRef)
	case source.ISCSI != nil:
		refs = append(refs, source.ISCSI.SecretRef)
	case source.StorageOS != nil && source.StorageOS.SecretRef != nil:
		refs = append(refs, &corev1.SecretReference{
			Namespace: source.StorageOS.SecretRef.Namespace,
			Name:      source.StorageOS.SecretRef.Name,
		})
	case source.CSI != nil: // a kubelet does not need the controller's secrets
		refs = append(refs, source.CSI.NodePublishSecretRef, source.CSI.NodeStageSecretRef,
			source.CSI.NodeExpandSecretRef)
	}
	var secrets []corev1.SecretReference
	for _, ref := range refs {
		if ref != nil {
			secrets = append(secrets, corev1.SecretReference{
				Namespace: cmp.Or(ref.Namespace, v.Spec.ClaimRef.Namespace),
				Name:      ref.Name,
			})
		}
	}
	return secrets
}
