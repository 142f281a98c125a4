package podspec

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// SetPodResources completes the resources that a pod has as a whole, if it has any (KEP-2837). Unlike other defaults they come after
// admission, which may still change containers.
func SetPodResources(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Requests)+len(r.Limits) == 0 {
		return
	}
	pod := &corev1.Pod{Spec: *spec}
	requests := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})

	// Huge pages cannot be promised twice: what containers have, the pod must have.
	for name, limit := range limits {
		if _, requested := r.Requests[name]; isHugePages(name) && !requested {
			setAmount(&r.Limits, name, limit)
		}
	}
	for name, request := range requests {
		if !isHugePages(name) {
			setAmount(&r.Requests, name, request)
		}
	}
	for name, limit := range r.Limits {
		setAmount(&r.Requests, name, limit)
	}
	// Where all containers are limited, so is the pod.
	for name, request := range r.Requests {
		unlimited := func(c corev1.Container) bool { _, ok := c.Resources.Limits[name]; return !ok }
		if slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), unlimited) || len(spec.EphemeralContainers) > 0 {
			continue
		}
		limit := limits[name]
		if request.Cmp(limit) > 0 {
			limit = request
		}
		setAmount(&r.Limits, name, limit)
	}
}

// UpdatePodResources is [SetPodResources] for updates, which do not take the resources of a whole pod away and complete only what they
// change.
func UpdatePodResources(spec, old *corev1.PodSpec) {
	if spec.Resources == nil {
		spec.Resources = old.Resources.DeepCopy()
		return
	}
	if !equality.Semantic.DeepEqual(spec.Resources, old.Resources) {
		SetPodResources(spec)
	}
}

// setAmount sets an amount that is not set, of a resource that pods can have as a whole. The list is copied, not written to.
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
