package plugin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Secrets returns the names of all secrets that a pod refers to.
func Secrets(spec *corev1.PodSpec) sets.Set[string] {
	found := sets.New[string]()
	local := func(refs ...*corev1.LocalObjectReference) {
		for _, r := range refs {
			if r != nil && r.Name != "" {
				found.Insert(r.Name)
			}
		}
	}
	for i := range spec.ImagePullSecrets {
		local(&spec.ImagePullSecrets[i])
	}
	environment := func(env []corev1.EnvVar, from []corev1.EnvFromSource) {
		for _, e := range env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				local(&e.ValueFrom.SecretKeyRef.LocalObjectReference)
			}
		}
		for _, e := range from {
			if e.SecretRef != nil {
				local(&e.SecretRef.LocalObjectReference)
			}
		}
	}
	Containers(spec, func(c *corev1.Container) { environment(c.Env, c.EnvFrom) })
	for _, c := range spec.EphemeralContainers {
		environment(c.Env, c.EnvFrom)
	}
	for _, v := range spec.Volumes {
		name := func(name string) { local(&corev1.LocalObjectReference{Name: name}) }
		switch {
		case v.Secret != nil:
			name(v.Secret.SecretName)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.Secret != nil {
					local(&s.Secret.LocalObjectReference)
				}
			}
		case v.AzureFile != nil:
			name(v.AzureFile.SecretName)
		case v.CephFS != nil:
			local(v.CephFS.SecretRef)
		case v.Cinder != nil:
			local(v.Cinder.SecretRef)
		case v.FlexVolume != nil:
			local(v.FlexVolume.SecretRef)
		case v.RBD != nil:
			local(v.RBD.SecretRef)
		case v.ScaleIO != nil:
			local(v.ScaleIO.SecretRef)
		case v.ISCSI != nil:
			local(v.ISCSI.SecretRef)
		case v.StorageOS != nil:
			local(v.StorageOS.SecretRef)
		case v.CSI != nil:
			local(v.CSI.NodePublishSecretRef)
		}
	}
	return found
}
