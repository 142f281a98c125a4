package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kinproc/kinproc/chain/features"
)

// specFeatures returns the features that have fields in pod specs, except for those that are always
// on.
func specFeatures() []features.Fields[corev1.PodSpec] {
	return []features.Fields[corev1.PodSpec]{
		{Take: genericWorkload},
		{Take: evictionRequests},
		{Take: stopSignals},
		{Take: h2cProbes},
		{Take: grpcTLSProbes},
		{Take: bindMountOptions},
		{Take: emptyDirModes},
		{Take: fileOwners},
		{Gate: features.ClusterTrustBundleProjection, Take: trustBundles},
		{Gate: features.PodCertificateRequest, Take: podCertificates},
		{Gate: features.ContainerRestartRules, Take: restartRules},
		{Gate: features.HostnameOverride, Take: hostnameOverride},
		{Gate: features.EnvFiles, Take: envFiles},
		{Gate: features.ImageVolume, Take: imageVolumes},
	}
}

// DropDisabledFields clears the fields of disabled features, unless old uses them. old is nil on
// create.
func DropDisabledFields(tmpl, old *corev1.PodTemplateSpec) {
	if old == nil {
		DropDisabledSpecFields(&tmpl.Spec, nil)
		return
	}
	DropDisabledSpecFields(&tmpl.Spec, &old.Spec)
}

// DropDisabledSpecFields is like [DropDisabledFields], but for a pod spec.
func DropDisabledSpecFields(spec, old *corev1.PodSpec) {
	features.Drop(specFeatures(), spec, old, features.Enabled)
}

func genericWorkload(spec *corev1.PodSpec, clear bool) bool {
	return features.Take(&spec.SchedulingGroup, clear)
}

func evictionRequests(spec *corev1.PodSpec, clear bool) bool {
	return features.TakeList(&spec.EvictionResponders, clear)
}

func stopSignals(spec *corev1.PodSpec, clear bool) bool {
	return anyContainer(spec, func(c *corev1.Container) bool {
		if c.Lifecycle == nil || !features.Take(&c.Lifecycle.StopSignal, clear) {
			return false
		}
		if clear && *c.Lifecycle == (corev1.Lifecycle{}) {
			c.Lifecycle = nil
		}
		return true
	})
}

func h2cProbes(spec *corev1.PodSpec, clear bool) bool {
	return anyContainer(spec, func(c *corev1.Container) bool {
		used := false
		for _, get := range httpGets(c) {
			used = features.Take(&get.Protocol, clear) || used
		}
		return used
	})
}

func grpcTLSProbes(spec *corev1.PodSpec, clear bool) bool {
	return anyContainer(spec, func(c *corev1.Container) bool {
		used := false
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if p != nil && p.GRPC != nil {
				used = features.Take(&p.GRPC.Mode, clear) || used
			}
		}
		return used
	})
}

func bindMountOptions(spec *corev1.PodSpec, clear bool) bool {
	return anyContainer(spec, func(c *corev1.Container) bool {
		used := false
		for i := range c.VolumeMounts {
			used = features.TakeList(&c.VolumeMounts[i].BindMountOptions, clear) || used
		}
		return used
	})
}

func emptyDirModes(spec *corev1.PodSpec, clear bool) bool {
	return anyVolume(spec, func(v *corev1.Volume) bool {
		return v.EmptyDir != nil && features.Take(&v.EmptyDir.Mode, clear)
	})
}

func fileOwners(spec *corev1.PodSpec, clear bool) bool {
	items := func(list []corev1.KeyToPath) bool {
		used := false
		for i := range list {
			used = features.Take(&list[i].User, clear) || used
		}
		return used
	}
	downward := func(list []corev1.DownwardAPIVolumeFile) bool {
		used := false
		for i := range list {
			used = features.Take(&list[i].User, clear) || used
		}
		return used
	}
	used := anyVolume(spec, func(v *corev1.Volume) bool {
		used := false
		if s := v.Secret; s != nil {
			used = features.Take(&s.DefaultUser, clear) || used
			used = items(s.Items) || used
		}
		if s := v.ConfigMap; s != nil {
			used = features.Take(&s.DefaultUser, clear) || used
			used = items(s.Items) || used
		}
		if s := v.DownwardAPI; s != nil {
			used = features.Take(&s.DefaultUser, clear) || used
			used = downward(s.Items) || used
		}
		if s := v.Projected; s != nil {
			used = features.Take(&s.DefaultUser, clear) || used
		}
		return used
	})
	return anyProjection(spec, func(p *corev1.VolumeProjection) bool {
		used := false
		if s := p.Secret; s != nil {
			used = items(s.Items) || used
		}
		if s := p.ConfigMap; s != nil {
			used = items(s.Items) || used
		}
		if s := p.DownwardAPI; s != nil {
			used = downward(s.Items) || used
		}
		if s := p.ServiceAccountToken; s != nil {
			used = features.Take(&s.User, clear) || used
		}
		if s := p.ClusterTrustBundle; s != nil {
			used = features.Take(&s.User, clear) || used
		}
		if s := p.PodCertificate; s != nil {
			used = features.Take(&s.User, clear) || used
		}
		return used
	}) || used
}

func trustBundles(spec *corev1.PodSpec, clear bool) bool {
	return anyProjection(spec, func(p *corev1.VolumeProjection) bool {
		return features.Take(&p.ClusterTrustBundle, clear)
	})
}

func podCertificates(spec *corev1.PodSpec, clear bool) bool {
	return anyProjection(spec, func(p *corev1.VolumeProjection) bool {
		return features.Take(&p.PodCertificate, clear)
	})
}

// restartRules are the restart policies and rules of containers (KEP-5307). The policy of a sidecar
// is not part of this feature.
func restartRules(spec *corev1.PodSpec, clear bool) bool {
	used := false
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		used = !isSidecar(c) && features.Take(&c.RestartPolicy, clear) || used
		used = features.TakeList(&c.RestartPolicyRules, clear) || used
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		used = features.Take(&c.RestartPolicy, clear) || used
		features.TakeList(&c.RestartPolicyRules, clear) // only valid with a policy
	}
	for i := range spec.EphemeralContainers {
		c := &spec.EphemeralContainers[i]
		features.Take(&c.RestartPolicy, clear) // never valid
		features.TakeList(&c.RestartPolicyRules, clear)
	}
	return used
}

// HasRestartRules reports whether containers have restart policies or rules, apart from sidecars.
func HasRestartRules(spec *corev1.PodSpec) bool { return restartRules(spec, false) }

// restartsAll are the rules that restart the whole pod, and those of sidecars (KEP-5532). They are
// never cleared: validation refuses them.
func restartsAll(spec *corev1.PodSpec) bool {
	has := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	}
	return slices.ContainsFunc(spec.Containers, has) ||
		slices.ContainsFunc(spec.InitContainers, func(c corev1.Container) bool {
			return has(c) || isSidecar(&c) && len(c.RestartPolicyRules) > 0
		})
}

func hostnameOverride(spec *corev1.PodSpec, clear bool) bool {
	return features.Take(&spec.HostnameOverride, clear)
}

func envFiles(spec *corev1.PodSpec, clear bool) bool {
	return anyContainer(spec, func(c *corev1.Container) bool {
		used := false
		for i := range c.Env {
			if from := c.Env[i].ValueFrom; from != nil {
				used = features.Take(&from.FileKeyRef, clear) || used
			}
		}
		return used
	})
}

// imageVolumes are cleared together with their mounts.
func imageVolumes(spec *corev1.PodSpec, clear bool) bool {
	names := map[string]bool{}
	for _, v := range spec.Volumes {
		if v.Image != nil {
			names[v.Name] = true
		}
	}
	if clear && len(names) > 0 {
		spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
			return v.Image != nil
		})
		anyContainer(spec, func(c *corev1.Container) bool {
			c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
				return names[m.Name]
			})
			return true
		})
	}
	return len(names) > 0
}

func anyContainer(spec *corev1.PodSpec, visit func(c *corev1.Container) bool) bool {
	used := false
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			used = visit(&list[i]) || used
		}
	}
	for i := range spec.EphemeralContainers {
		used = visit((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)) || used
	}
	return used
}

func anyVolume(spec *corev1.PodSpec, visit func(v *corev1.Volume) bool) bool {
	used := false
	for i := range spec.Volumes {
		used = visit(&spec.Volumes[i]) || used
	}
	return used
}

func anyProjection(spec *corev1.PodSpec, visit func(p *corev1.VolumeProjection) bool) bool {
	return anyVolume(spec, func(v *corev1.Volume) bool {
		used := false
		if v.Projected != nil {
			for i := range v.Projected.Sources {
				used = visit(&v.Projected.Sources[i]) || used
			}
		}
		return used
	})
}

func httpGets(c *corev1.Container) []*corev1.HTTPGetAction {
	var gets []*corev1.HTTPGetAction
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil && p.HTTPGet != nil {
			gets = append(gets, p.HTTPGet)
		}
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil && h.HTTPGet != nil {
				gets = append(gets, h.HTTPGet)
			}
		}
	}
	return gets
}
