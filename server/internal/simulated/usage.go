package simulated

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The annotations that say how much of a resource containers use. On a pod they are for each of its
// regular containers, or for the one whose name follows after a dot. On the workload that owns the
// pod, such as a Deployment, they are for all of its pods together, which share the load.
const (
	cpuAnnotation    = "kinproc.dev/cpu"
	memoryAnnotation = "kinproc.dev/memory"
)

// The usage of a container without annotations: a tenth of its request, or as much as an idle
// process needs.
const (
	idlePart   = 10
	idleCPU    = 1 // thousandths
	idleMemory = 8 << 20 * 1000
)

// ContainerUsage is what a container uses.
type ContainerUsage struct {
	Name  string
	Usage corev1.ResourceList
}

// Load is what the owner of a pod says of the use of its pods.
type Load struct {
	// Annotations are those of the owner.
	Annotations map[string]string
	// Pods is among how many pods the load is shared.
	Pods int
}

// Usage returns what the running containers of a pod use. It is empty if none runs.
func Usage(p *corev1.Pod, load Load, now time.Time) []ContainerUsage {
	var used []ContainerUsage
	if p.Status.Phase != corev1.PodRunning {
		return nil
	}
	add := func(c *corev1.Container, statuses []corev1.ContainerStatus, kind containerKind) {
		for i := range statuses {
			if s := &statuses[i]; s.Name == c.Name && s.State.Running != nil {
				used = append(used, ContainerUsage{c.Name, corev1.ResourceList{
					corev1.ResourceCPU:    usageOf(p, c, kind, corev1.ResourceCPU, load, now),
					corev1.ResourceMemory: usageOf(p, c, kind, corev1.ResourceMemory, load, now),
				}})
				return
			}
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		add(c, p.Status.InitContainerStatuses, kindOf(c))
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i], p.Status.ContainerStatuses, regular)
	}
	return used
}

// usageOf returns how much of a resource a container uses, which is never more than its limit.
func usageOf(
	p *corev1.Pod, c *corev1.Container, kind containerKind, name corev1.ResourceName, load Load,
	now time.Time,
) resource.Quantity {
	key, idle, format := cpuAnnotation, int64(idleCPU), resource.DecimalSI
	if name == corev1.ResourceMemory {
		key, idle, format = memoryAnnotation, idleMemory, resource.BinarySI
	}
	requested := c.Resources.Requests.Name(name, format).MilliValue()
	used := max(idle, requested/idlePart)
	if a, err := ParseAmount(load.Annotations[key]); err == nil && kind == regular {
		used = a.At(now, requested)
		if !a.low.relative || !a.high.relative {
			used /= int64(max(1, load.Pods) * len(p.Spec.Containers))
		}
	}
	if text, ok := steer(p, key, c.Name, kind); ok {
		if a, err := ParseAmount(text); err == nil {
			used = a.At(now, requested)
		}
	}
	if limit, ok := c.Resources.Limits[name]; ok {
		used = min(used, limit.MilliValue())
	}
	if name == corev1.ResourceMemory {
		return *resource.NewQuantity(used/1000, format)
	}
	return *resource.NewMilliQuantity(used, format)
}

// Loaded reports whether the annotations of an owner of pods say how much its pods use.
func Loaded(annotations map[string]string) bool {
	for key := range annotations {
		if key == cpuAnnotation || key == memoryAnnotation ||
			strings.HasPrefix(key, CustomMetric) {
			return true
		}
	}
	return false
}
