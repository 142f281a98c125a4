package podspec

import (
	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
	"github.com/kinproc/kinproc/chain/features"
)

const (
	defaultSchedulerName = corev1.DefaultSchedulerName
	// defaultGracePeriod is the time that containers have to stop, in seconds.
	defaultGracePeriod = int64(corev1.DefaultTerminationGracePeriodSeconds)
)

// SetDefaults sets the defaults of a pod template's spec. [SetPodDefaults] sets those that only
// pods get.
func SetDefaults(spec *corev1.PodSpec) {
	SyncServiceAccount(spec)
	orDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	orDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	orDefault(&spec.SchedulerName, defaultSchedulerName)
	orPointer(&spec.TerminationGracePeriodSeconds, defaultGracePeriod)
	orPointer(&spec.SecurityContext, corev1.PodSecurityContext{})
	for i := range spec.Volumes {
		setVolumeDefaults(&spec.Volumes[i].VolumeSource)
	}
	for i := range spec.InitContainers {
		setContainerDefaults(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		setContainerDefaults(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		setContainerDefaults((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	quantities.RoundUp(spec.Overhead)
	setResourceDefaults(spec.Resources)
}

// SetPodDefaults sets the defaults of a pod's spec, including those that templates do not get. Pods
// created from a template get them when they are created.
func SetPodDefaults(spec *corev1.PodSpec) {
	SetDefaults(spec)
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			requestLimits(&containers[i].Resources)
		}
	}
	// With the fix, DefaultPodResources does this, when admission has added all containers.
	if !features.Enabled(features.PodLevelResourcesFixDefaulting) {
		setPodResources(spec)
	}
	orPointer(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	if !spec.HostNetwork {
		return
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			setHostPorts(containers[i].Ports)
		}
	}
}

// SyncServiceAccount copies serviceAccountName to the deprecated field serviceAccount, or back if
// only the deprecated field is set.
func SyncServiceAccount(spec *corev1.PodSpec) {
	orDefault(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
}

func setContainerDefaults(c *corev1.Container) {
	orDefault(&c.ImagePullPolicy, pullPolicy(c.Image))
	orDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	orDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		orDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			setFieldRefDefaults(from.FieldRef)
			if from.FileKeyRef != nil {
				orPointer(&from.FileKeyRef.Optional, false)
			}
		}
	}
	setResourceDefaults(&c.Resources)
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe == nil {
			continue
		}
		orDefault(&probe.TimeoutSeconds, 1)
		orDefault(&probe.PeriodSeconds, 10)
		orDefault(&probe.SuccessThreshold, 1)
		orDefault(&probe.FailureThreshold, 3)
		setHTTPGetDefaults(probe.HTTPGet)
		if probe.GRPC != nil {
			orPointer(&probe.GRPC.Service, "")
		}
	}
	if c.Lifecycle != nil {
		for _, hook := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if hook != nil {
				setHTTPGetDefaults(hook.HTTPGet)
			}
		}
	}
}

func setHTTPGetDefaults(get *corev1.HTTPGetAction) {
	if get != nil {
		orDefault(&get.Path, "/")
		orDefault(&get.Scheme, corev1.URISchemeHTTP)
	}
}

func setFieldRefDefaults(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		orDefault(&ref.APIVersion, "v1")
	}
}

// pullPolicy returns Always for images that may change under their name, because their tag is
// latest or they have no tag or digest, and IfNotPresent for all others.
func pullPolicy(image string) corev1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return corev1.PullIfNotPresent
	}
	if tagged, ok := named.(reference.Tagged); ok {
		if tagged.Tag() == "latest" {
			return corev1.PullAlways
		}
		return corev1.PullIfNotPresent
	}
	if _, ok := named.(reference.Digested); ok {
		return corev1.PullIfNotPresent
	}
	return corev1.PullAlways
}

func setHostPorts(ports []corev1.ContainerPort) {
	for i := range ports {
		orDefault(&ports[i].HostPort, ports[i].ContainerPort)
	}
}

func setResourceDefaults(r *corev1.ResourceRequirements) {
	if r != nil {
		quantities.RoundUp(r.Limits, r.Requests)
	}
}

// requestLimits sets each missing request to the corresponding limit.
func requestLimits(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

// orDefault sets *value to preset if it is the zero value.
func orDefault[T comparable](value *T, preset T) {
	var unset T
	if *value == unset {
		*value = preset
	}
}

// orPointer points *value to preset if it is nil.
func orPointer[T any](value **T, preset T) {
	if *value == nil {
		*value = &preset
	}
}
