package podspec

import (
	corev1 "k8s.io/api/core/v1"
)

// feature reports whether spec uses the fields of a feature that is off by default in Kubernetes
// 1.37. If clear is true, it clears them.
type feature func(spec *corev1.PodSpec, clear bool) (used bool)

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
	features := []feature{
		genericWorkload, evictionRequests, stopSignals, h2cProbes, grpcTLSProbes, bindMountOptions,
		emptyDirModes, fileOwners,
	}
	for _, f := range features {
		if old == nil || !f(old, false) {
			f(spec, true)
		}
	}
}

// take reports whether *value is set. If clear is true, it clears it.
func take[T comparable](value *T, clear bool) bool {
	var unset T
	used := *value != unset
	if clear {
		*value = unset
	}
	return used
}

func takeList[T any](list *[]T, clear bool) bool {
	used := len(*list) > 0
	if clear {
		*list = nil
	}
	return used
}

func genericWorkload(spec *corev1.PodSpec, clear bool) bool {
	return take(&spec.SchedulingGroup, clear)
}

func evictionRequests(spec *corev1.PodSpec, clear bool) bool {
	return takeList(&spec.EvictionResponders, clear)
}

func stopSignals(spec *corev1.PodSpec, clear bool) bool {
	return anyContainer(spec, func(c *corev1.Container) bool {
		if c.Lifecycle == nil || !take(&c.Lifecycle.StopSignal, clear) {
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
			used = take(&get.Protocol, clear) || used
		}
		return used
	})
}

func grpcTLSProbes(spec *corev1.PodSpec, clear bool) bool {
	return anyContainer(spec, func(c *corev1.Container) bool {
		used := false
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if p != nil && p.GRPC != nil {
				used = take(&p.GRPC.Mode, clear) || used
			}
		}
		return used
	})
}

func bindMountOptions(spec *corev1.PodSpec, clear bool) bool {
	return anyContainer(spec, func(c *corev1.Container) bool {
		used := false
		for i := range c.VolumeMounts {
			used = takeList(&c.VolumeMounts[i].BindMountOptions, clear) || used
		}
		return used
	})
}

func emptyDirModes(spec *corev1.PodSpec, clear bool) bool {
	return anyVolume(spec, func(v *corev1.Volume) bool {
		return v.EmptyDir != nil && take(&v.EmptyDir.Mode, clear)
	})
}

func fileOwners(spec *corev1.PodSpec, clear bool) bool {
	items := func(list []corev1.KeyToPath) bool {
		used := false
		for i := range list {
			used = take(&list[i].User, clear) || used
		}
		return used
	}
	downward := func(list []corev1.DownwardAPIVolumeFile) bool {
		used := false
		for i := range list {
			used = take(&list[i].User, clear) || used
		}
		return used
	}
	used := anyVolume(spec, func(v *corev1.Volume) bool {
		used := false
		if s := v.Secret; s != nil {
			used = take(&s.DefaultUser, clear) || used
			used = items(s.Items) || used
		}
		if s := v.ConfigMap; s != nil {
			used = take(&s.DefaultUser, clear) || used
			used = items(s.Items) || used
		}
		if s := v.DownwardAPI; s != nil {
			used = take(&s.DefaultUser, clear) || used
			used = downward(s.Items) || used
		}
		if s := v.Projected; s != nil {
			used = take(&s.DefaultUser, clear) || used
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
			used = take(&s.User, clear) || used
		}
		if s := p.ClusterTrustBundle; s != nil {
			used = take(&s.User, clear) || used
		}
		if s := p.PodCertificate; s != nil {
			used = take(&s.User, clear) || used
		}
		return used
	}) || used
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
