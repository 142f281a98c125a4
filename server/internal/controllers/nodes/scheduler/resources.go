package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kinproc/kinproc/chain/features"
)

// Requests that a container without any is scored with, so that such pods are spread as well.
const (
	assumedMilliCPU = 100
	assumedMemory   = 200 << 20
)

// resources are amounts of resources.
type resources struct {
	milliCPU, memory, storage int64
	others                    map[corev1.ResourceName]int64
}

func resourcesOf(list corev1.ResourceList) resources {
	var r resources
	for name, quantity := range list {
		switch name {
		case corev1.ResourceCPU:
			r.milliCPU = quantity.MilliValue()
		case corev1.ResourceMemory:
			r.memory = quantity.Value()
		case corev1.ResourceEphemeralStorage:
			r.storage = quantity.Value()
		case corev1.ResourcePods:
		default:
			if r.others == nil {
				r.others = map[corev1.ResourceName]int64{}
			}
			r.others[name] = quantity.Value()
		}
	}
	return r
}

// requestsOf returns what a pod requests, and what it is scored with.
func requestsOf(p *corev1.Pod) (requests, scored resources) {
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	options.InPlacePodLevelResourcesVerticalScalingEnabled = features.Enabled(
		features.InPlacePodLevelResourcesVerticalScaling)
	requests = resourcesOf(resourcehelper.PodRequests(p, options))
	if requests.milliCPU != 0 && requests.memory != 0 && len(p.Spec.Containers) == 1 {
		return requests, requests // spares the common pod the second sum
	}
	options.NonMissingContainerRequests = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(assumedMilliCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(assumedMemory, resource.BinarySI),
	}
	return requests, resourcesOf(resourcehelper.PodRequests(p, options))
}

// add adds times times other.
func (r *resources) add(other *resources, times int64) {
	r.milliCPU += times * other.milliCPU
	r.memory += times * other.memory
	r.storage += times * other.storage
	for name, amount := range other.others {
		if r.others == nil {
			r.others = map[corev1.ResourceName]int64{}
		}
		r.others[name] += times * amount
	}
}

// lacking returns the names of the resources of which less than requests is left when used of r is
// taken. Never is true if r has less even when nothing is taken. If r has nothing of one that is
// offered by a device class, the devices are looked for later.
func (r *resources) lacking(
	used, requests *resources, offered []corev1.ResourceName,
) (names []string, never bool) {
	check := func(name corev1.ResourceName, total, used, request int64) {
		if request > 0 && request > total-used {
			names = append(names, string(name))
			never = never || request > total
		}
	}
	check(corev1.ResourceCPU, r.milliCPU, used.milliCPU, requests.milliCPU)
	check(corev1.ResourceMemory, r.memory, used.memory, requests.memory)
	check(corev1.ResourceEphemeralStorage, r.storage, used.storage, requests.storage)
	others := len(names)
	for name, request := range requests.others {
		if r.others[name] == 0 && slices.Contains(offered, name) {
			continue
		}
		check(name, r.others[name], used.others[name], request)
	}
	slices.Sort(names[others:])
	return names, never
}
