// Package podreferences finds the objects to which a pod refers: its service account, and the
// secrets, config maps, claims of volumes and claims of devices that it uses.
package podreferences

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Has reports whether a pod refers to the object with the given resource and name.
func Has(p *corev1.Pod, resource, name string) (found bool) {
	Each(p, func(r, n string) { found = found || r == resource && n == name })
	return found
}

// Secrets returns the names of all secrets that a pod refers to.
func Secrets(spec *corev1.PodSpec) sets.Set[string] {
	found := sets.New[string]()
	Each(&corev1.Pod{Spec: *spec}, func(resource, name string) {
		if resource == "secrets" && name != "" {
			found.Insert(name)
		}
	})
	return found
}

// Each calls see with the resource and the name of each object to which a pod refers.
func Each(p *corev1.Pod, see func(resource, name string)) {
	u := usage{see}
	u.see("serviceaccounts", p.Spec.ServiceAccountName)
	for i := range p.Spec.Volumes {
		u.volume(p, &p.Spec.Volumes[i])
	}
	for i := range p.Spec.InitContainers {
		u.environment(p.Spec.InitContainers[i].Env, p.Spec.InitContainers[i].EnvFrom)
	}
	for i := range p.Spec.Containers {
		u.environment(p.Spec.Containers[i].Env, p.Spec.Containers[i].EnvFrom)
	}
	for i := range p.Spec.EphemeralContainers {
		u.environment(p.Spec.EphemeralContainers[i].Env, p.Spec.EphemeralContainers[i].EnvFrom)
	}
	for _, pull := range p.Spec.ImagePullSecrets {
		u.see("secrets", pull.Name)
	}
	for _, claim := range p.Status.ResourceClaimStatuses {
		if claim.ResourceClaimName != nil {
			u.see("resourceclaims", *claim.ResourceClaimName)
		}
	}
	for _, claim := range p.Spec.ResourceClaims {
		if claim.ResourceClaimName != nil {
			u.see("resourceclaims", *claim.ResourceClaimName)
		}
	}
	if extended := p.Status.ExtendedResourceClaimStatus; extended != nil {
		u.see("resourceclaims", extended.ResourceClaimName)
	}
}

// usage passes the references of a pod on.
type usage struct{ see func(resource, name string) }

func (u usage) environment(env []corev1.EnvVar, from []corev1.EnvFromSource) {
	for i := range env {
		if source := env[i].ValueFrom; source != nil && source.SecretKeyRef != nil {
			u.see("secrets", source.SecretKeyRef.Name)
		} else if source != nil && source.ConfigMapKeyRef != nil {
			u.see("configmaps", source.ConfigMapKeyRef.Name)
		}
	}
	for i := range from {
		if from[i].SecretRef != nil {
			u.see("secrets", from[i].SecretRef.Name)
		}
		if from[i].ConfigMapRef != nil {
			u.see("configmaps", from[i].ConfigMapRef.Name)
		}
	}
}

func (u usage) volume(p *corev1.Pod, v *corev1.Volume) {
	local := func(ref *corev1.LocalObjectReference) {
		if ref != nil {
			u.see("secrets", ref.Name)
		}
	}
	switch {
	case v.Secret != nil:
		u.see("secrets", v.Secret.SecretName)
	case v.ConfigMap != nil:
		u.see("configmaps", v.ConfigMap.Name)
	case v.PersistentVolumeClaim != nil:
		u.see("persistentvolumeclaims", v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil:
		u.see("persistentvolumeclaims", p.Name+"-"+v.Name)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			if source.Secret != nil {
				u.see("secrets", source.Secret.Name)
			}
			if source.ConfigMap != nil {
				u.see("configmaps", source.ConfigMap.Name)
			}
		}
	case v.CSI != nil:
		local(v.CSI.NodePublishSecretRef)
	case v.CephFS != nil:
		local(v.CephFS.SecretRef)
	case v.FlexVolume != nil:
		local(v.FlexVolume.SecretRef)
	case v.ISCSI != nil:
		local(v.ISCSI.SecretRef)
	case v.RBD != nil:
		local(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		local(v.ScaleIO.SecretRef)
	case v.StorageOS != nil:
		local(v.StorageOS.SecretRef)
	case v.Cinder != nil:
		local(v.Cinder.SecretRef)
	case v.AzureFile != nil:
		u.see("secrets", v.AzureFile.SecretName)
	}
}
