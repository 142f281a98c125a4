package scheduler

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestDeviceRequests has containers that share devices, as kube-scheduler 1.37.2 was seen to let
// them.
func TestDeviceRequests(t *testing.T) {
	t.Parallel()
	const name = "example.com/gpu"
	container := func(as, amount string, more ...corev1.ResourceName) corev1.Container {
		c := corev1.Container{Name: as, Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{},
		}}
		if amount != "" {
			c.Resources.Requests[name] = resource.MustParse(amount)
		}
		for _, other := range more {
			c.Resources.Requests[other] = resource.MustParse("1")
		}
		return c
	}
	sidecar := container("s", "1")
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	request := func(name string, count int64) resourcev1.DeviceRequest {
		return resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
		}}
	}
	uses := func(container, request string) corev1.ContainerExtendedResourceRequest {
		return corev1.ContainerExtendedResourceRequest{
			ContainerName: container, ResourceName: name, RequestName: request,
		}
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{
			container("i1", "3"), container("i2", "4"), sidecar, container("i3", "1"),
		},
		Containers: []corev1.Container{
			container("c", "1", corev1.ResourceCPU), container("none", ""),
		},
	}}
	requests, mappings := deviceRequests(p, name, "gpu")
	if want := []resourcev1.DeviceRequest{
		request("container-2-request-0", 1), request("container-4-request-1", 1),
		request("container-1-request-0", 2),
	}; !reflect.DeepEqual(requests, want) {
		t.Errorf("the requests are %+v, want %+v", requests, want)
	}
	if want := []corev1.ContainerExtendedResourceRequest{
		uses("s", "container-2-request-0"), uses("c", "container-4-request-1"),
		uses("i1", "container-2-request-0"), uses("i1", "container-4-request-1"),
		uses("i1", "container-1-request-0"),
		uses("i2", "container-2-request-0"), uses("i2", "container-4-request-1"),
		uses("i2", "container-1-request-0"),
		uses("i3", "container-4-request-1"),
	}; !reflect.DeepEqual(mappings, want) {
		t.Errorf("the mappings are %+v, want %+v", mappings, want)
	}
}
