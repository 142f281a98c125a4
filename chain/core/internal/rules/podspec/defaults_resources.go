package podspec

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// setPodResources sets the defaults of pod-level resources if the pod has any (KEP-2837).
func setPodResources(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Requests)+len(r.Limits) == 0 {
		return
	}
	pod := &corev1.Pod{Spec: *spec}
	// Huge pages cannot be overcommitted, so the pod's limit defaults to the sum of its containers'
	// limits.
	for name, limit := range resourcehelper.AggregateContainerLimits(pod,
		resourcehelper.PodResourcesOptions{}) {
		if _, requested := r.Requests[name]; isHugePages(name) && !requested {
			setAmount(&r.Limits, name, limit)
		}
	}
	if len(r.Limits) == 0 {
		return
	}
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
