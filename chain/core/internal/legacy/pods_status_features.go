package legacy

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kinproc/kinproc/chain/features"
)

// statusFeatures returns the features that have fields in the status of pods, except for those that
// are always on.
func statusFeatures() []features.Fields[corev1.PodStatus] {
	type S = *corev1.PodStatus
	return []features.Fields[corev1.PodStatus]{
		{Take: func(s S, clear bool) bool {
			return features.TakeList(&s.NodeAllocatableResourceClaimStatuses, clear)
		}},
		{Take: func(s S, clear bool) bool { return features.TakeList(&s.VolumeHealth, clear) }},
		{Take: ofContainers(imageDigests)},
		{
			Gate: features.InPlacePodLevelResourcesVerticalScaling,
			Take: func(s S, clear bool) bool {
				used := s.AllocatedResources != nil
				if clear {
					s.AllocatedResources = nil
				}
				return features.Take(&s.Resources, clear) || used
			},
		},
		{
			Gate: features.DRAExtendedResource,
			Take: func(s S, clear bool) bool {
				return features.Take(&s.ExtendedResourceClaimStatus, clear)
			},
		},
		{
			Gate: features.ResourceHealthStatus,
			Take: ofContainers(func(c *corev1.ContainerStatus, clear bool) bool {
				return features.TakeList(&c.AllocatedResourcesStatus, clear)
			}),
		},
		{Gate: features.ResourceHealthStatusMessage, Take: ofContainers(healthMessages)},
	}
}

func ofContainers(
	take func(c *corev1.ContainerStatus, clear bool) bool,
) func(*corev1.PodStatus, bool) bool {
	return func(s *corev1.PodStatus, clear bool) bool {
		used := false
		for _, c := range containerStatuses(s) {
			used = take(c, clear) || used
		}
		return used
	}
}

// imageDigests are the only status that a volume of a container can have.
func imageDigests(c *corev1.ContainerStatus, clear bool) bool {
	used := false
	for i := range c.VolumeMounts {
		v := &c.VolumeMounts[i].VolumeStatus
		used = *v != nil && (*v).Image != nil || used
		features.Take(v, clear)
	}
	return used
}

func healthMessages(c *corev1.ContainerStatus, clear bool) bool {
	used := false
	for _, s := range c.AllocatedResourcesStatus {
		for i := range s.Resources {
			used = features.Take(&s.Resources[i].Message, clear) || used
		}
	}
	return used
}
