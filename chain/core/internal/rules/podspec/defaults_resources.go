package podspec

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kinproc/kinproc/chain/features"
)

// DefaultPodResources sets the defaults of pod-level resources if the pod has any (KEP-2837) and
// PodLevelResourcesFixDefaulting is on.
func DefaultPodResources(spec *corev1.PodSpec) {
	if features.Enabled(features.PodLevelResourcesFixDefaulting) {
		completePodResources(spec)
	}
}

// KeepPodResources restores the pod-level resources that a client that does not know them omitted,
// if PodLevelResourcesFixDefaulting is on.
func KeepPodResources(spec, old *corev1.PodSpec) {
	if features.Enabled(features.PodLevelResourcesFixDefaulting) && spec.Resources == nil {
		spec.Resources = old.Resources.DeepCopy()
	}
}

// completePodResources sets pod-level limits of huge pages, then all requests, then the limits of
// what all containers limit.
func completePodResources(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Requests)+len(r.Limits) == 0 {
		return
	}
	setHugePageLimits(spec)
	setPodRequests(spec)
	limits := resourcehelper.AggregateContainerLimits(&corev1.Pod{Spec: *spec},
		resourcehelper.PodResourcesOptions{})
	for name, request := range r.Requests {
		limit, ok := limits[name]
		if !ok || !allLimit(spec, name) {
			continue
		}
		if request.Cmp(limit) > 0 {
			limit = request
		}
		setAmount(&r.Limits, name, limit)
	}
}

// allLimit reports whether every container limits a resource.
func allLimit(spec *corev1.PodSpec, name corev1.ResourceName) bool {
	all := true
	eachContainer(spec, func(c *corev1.Container, _ *field.Path) {
		_, limited := c.Resources.Limits[name]
		all = all && limited
	})
	return all
}

// setPodResources sets the defaults of pod-level resources as before the fix: requests are set only
// if there are limits.
func setPodResources(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Requests)+len(r.Limits) == 0 {
		return
	}
	setHugePageLimits(spec)
	if len(r.Limits) > 0 {
		setPodRequests(spec)
	}
}

// setHugePageLimits sets the pod's limits of huge pages to the sums of its containers' limits: huge
// pages cannot be overcommitted.
func setHugePageLimits(spec *corev1.PodSpec) {
	r, pod := spec.Resources, &corev1.Pod{Spec: *spec}
	for name, limit := range resourcehelper.AggregateContainerLimits(pod,
		resourcehelper.PodResourcesOptions{}) {
		if _, requested := r.Requests[name]; isHugePages(name) && !requested {
			setAmount(&r.Limits, name, limit)
		}
	}
}

// setPodRequests sets the pod's requests to the sums of its containers' requests or else to the
// pod's limits.
func setPodRequests(spec *corev1.PodSpec) {
	r, pod := spec.Resources, &corev1.Pod{Spec: *spec}
	for name, request := range resourcehelper.AggregateContainerRequests(pod,
		resourcehelper.PodResourcesOptions{}) {
		if !isHugePages(name) {
			setAmount(&r.Requests, name, request)
		}
	}
	for name, limit := range r.Limits {
		setAmount(&r.Requests, name, limit)
	}
}

// setAmount sets the amount of a resource if it is unset and supported at pod level. It replaces
// the list instead of modifying it.
func setAmount(list *corev1.ResourceList, name corev1.ResourceName, amount resource.Quantity) {
	if _, ok := (*list)[name]; ok || !resourcehelper.IsSupportedPodLevelResource(name) {
		return
	}
	all := corev1.ResourceList{name: amount.DeepCopy()}
	maps.Copy(all, *list)
	*list = all
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
