package legacy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/featuregate"

	"github.com/kinproc/kinproc/chain/features"
)

// statusFeature is a feature with its gate. A feature without one is off in all versions.
type statusFeature struct {
	gate featuregate.Feature
	// used reports whether s uses the fields of the feature.
	used func(s *corev1.PodStatus) bool
	// drop clears them.
	drop func(s *corev1.PodStatus)
}

// statusFeatures returns the features that have fields in the status of pods, except for those that
// are always on.
func statusFeatures() []statusFeature {
	ofContainers := func(
		gate featuregate.Feature, used func(*corev1.ContainerStatus) bool,
		drop func(*corev1.ContainerStatus),
	) statusFeature {
		return statusFeature{
			gate: gate,
			used: func(s *corev1.PodStatus) bool {
				return slices.ContainsFunc(containerStatuses(s), used)
			},
			drop: func(s *corev1.PodStatus) {
				for _, c := range containerStatuses(s) {
					drop(c)
				}
			},
		}
	}
	return []statusFeature{
		{
			used: func(s *corev1.PodStatus) bool {
				return len(s.NodeAllocatableResourceClaimStatuses) > 0
			},
			drop: func(s *corev1.PodStatus) { s.NodeAllocatableResourceClaimStatuses = nil },
		},
		{
			used: func(s *corev1.PodStatus) bool { return len(s.VolumeHealth) > 0 },
			drop: func(s *corev1.PodStatus) { s.VolumeHealth = nil },
		},
		ofContainers("", hasImageDigest, dropVolumeStatus),
		{
			gate: features.InPlacePodLevelResourcesVerticalScaling,
			used: func(s *corev1.PodStatus) bool {
				return s.Resources != nil || s.AllocatedResources != nil
			},
			drop: func(s *corev1.PodStatus) { s.Resources, s.AllocatedResources = nil, nil },
		},
		{
			gate: features.DRAExtendedResource,
			used: func(s *corev1.PodStatus) bool { return s.ExtendedResourceClaimStatus != nil },
			drop: func(s *corev1.PodStatus) { s.ExtendedResourceClaimStatus = nil },
		},
		ofContainers(features.ResourceHealthStatus,
			func(c *corev1.ContainerStatus) bool { return len(c.AllocatedResourcesStatus) > 0 },
			func(c *corev1.ContainerStatus) { c.AllocatedResourcesStatus = nil }),
		ofContainers(features.ResourceHealthStatusMessage, hasHealthMessage, dropHealthMessages),
	}
}

// dropDisabledStatus clears the fields of features that are off, unless old uses them.
func dropDisabledStatus(s, old *corev1.PodStatus, on func(featuregate.Feature) bool) {
	for _, f := range statusFeatures() {
		if (f.gate == "" || !on(f.gate)) && !f.used(old) {
			f.drop(s)
		}
	}
}

func hasImageDigest(c *corev1.ContainerStatus) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMountStatus) bool {
		return m.VolumeStatus != nil && m.VolumeStatus.Image != nil
	})
}

func dropVolumeStatus(c *corev1.ContainerStatus) {
	for i := range c.VolumeMounts {
		c.VolumeMounts[i].VolumeStatus = nil
	}
}

func hasHealthMessage(c *corev1.ContainerStatus) bool {
	return slices.ContainsFunc(c.AllocatedResourcesStatus, func(s corev1.ResourceStatus) bool {
		return slices.ContainsFunc(s.Resources, func(r corev1.ResourceHealth) bool {
			return r.Message != nil
		})
	})
}

func dropHealthMessages(c *corev1.ContainerStatus) {
	for _, s := range c.AllocatedResourcesStatus {
		for i := range s.Resources {
			s.Resources[i].Message = nil
		}
	}
}
