package looptest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/nodes/scheduler"
	"github.com/kinproc/kinproc/server/internal/controllers/volumes/resourceclaims"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// slice publishes the devices of a node. A device has an attribute with its name.
func (c schedulerCluster) slice(node string, devices ...string) {
	c.tb.Helper()
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: &node,
			Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
		},
	}
	for _, name := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name: name,
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"name": {StringValue: new(name)},
			},
		})
	}
	if _, err := c.ResourceV1().ResourceSlices().Create(c.tb.Context(), s,
		metav1.CreateOptions{}); err != nil {
		c.tb.Fatal(err)
	}
}

// deviceClass makes a class of which all devices are.
func (c schedulerCluster) deviceClass(name string) {
	c.tb.Helper()
	if _, err := c.ResourceV1().DeviceClasses().Create(c.tb.Context(), &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}, metav1.CreateOptions{}); err != nil {
		c.tb.Fatal(err)
	}
}

// schedulerRequest is for one device of a class that suits the selectors.
func schedulerRequest(class string, selectors ...string) resourcev1.ResourceClaimSpec {
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: class}
	for _, expression := range selectors {
		exactly.Selectors = append(exactly.Selectors, resourcev1.DeviceSelector{
			CEL: &resourcev1.CELDeviceSelector{Expression: expression},
		})
	}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: exactly}},
	}}
}

func (c schedulerCluster) deviceClaim(name string, spec resourcev1.ResourceClaimSpec) {
	c.tb.Helper()
	if _, err := c.ResourceV1().ResourceClaims("default").Create(c.tb.Context(),
		&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
		metav1.CreateOptions{}); err != nil {
		c.tb.Fatal(err)
	}
}

// allocated waits until a claim is reserved for pods, and returns its device.
func (c schedulerCluster) allocated(name string, pods int) string {
	c.tb.Helper()
	claim := workloadtest.Await(c.tb, fmt.Sprintf("claim %s of %d pods", name, pods),
		func(ctx context.Context) (*resourcev1.ResourceClaim, error) {
			return c.ResourceV1().ResourceClaims("default").Get(ctx, name, metav1.GetOptions{})
		}, func(claim *resourcev1.ResourceClaim) bool { return len(claim.Status.ReservedFor) == pods })
	return claim.Status.Allocation.Devices.Results[0].Device
}

func schedulerNeeding(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
	}
}

func TestSchedulerDevices(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name, resourceclaims.Name)
	const unhelpful = " preemption: 0/2 nodes are available: " +
		"2 Preemption is not helpful for scheduling."
	c.node("one", "4")
	c.node("two", "4")

	// Several pods share a claim.
	c.pod("absent", "1", schedulerNeeding("shared"))
	c.pod("later", "100")
	c.refused("later", "0/2 nodes are available: 2 Insufficient cpu."+unhelpful)
	c.deviceClaim("shared", schedulerRequest("gpus"))
	c.refused("absent", "0/2 nodes are available: request gpu: device class gpus does not exist."+
		unhelpful)
	c.deviceClass("gpus")
	c.refused("absent", "0/2 nodes are available: 2 cannot allocate all claims."+unhelpful)
	c.slice("two", "a", "b")
	for _, name := range []string{"first", "second", "third"} {
		c.pod(name, "100m", schedulerNeeding("shared"))
	}
	for _, name := range []string{"absent", "first", "second", "third"} {
		if node := c.on(name); node != "two" {
			t.Errorf("the pod %s is on node %s, which has no devices", name, node)
		}
	}
	taken := c.allocated("shared", 4)
	// Until its claim was there, the pod was told nothing.
	c.event("absent", "Scheduled", "Successfully assigned default/absent to two")
	events := workloadtest.Must(c.EventsV1().Events("default").List(t.Context(),
		metav1.ListOptions{FieldSelector: "reason=FailedScheduling"}))(t)
	for _, e := range events.Items {
		if strings.Contains(e.Note, "not found") {
			t.Errorf("there is an event about %s: %s", e.Regarding.Name, e.Note)
		}
	}

	// A selector that suits no free device, and one that suits the other device.
	c.deviceClaim("taken", schedulerRequest("gpus",
		`device.attributes["gpu.example.com"].name == "`+taken+`"`))
	c.pod("waits", "100m", schedulerNeeding("taken"))
	c.refused("waits", "0/2 nodes are available: 2 cannot allocate all claims."+unhelpful)
	other := map[string]string{"a": "b", "b": "a"}[taken]
	c.deviceClaim("free", schedulerRequest("gpus",
		`device.attributes["gpu.example.com"].name == "`+other+`"`))
	c.pod("fits", "100m", schedulerNeeding("free"))
	c.on("fits")
	if device := c.allocated("free", 1); device != other {
		t.Errorf("the claim has the device %s", device)
	}

	// The device is free once no pod uses it.
	for _, name := range []string{"absent", "first", "second", "third"} {
		c.delete(name)
	}
	if node := c.on("waits"); node != "two" {
		t.Errorf("the pod is on node %s", node)
	}
}

// TestSchedulerDevicesOfTemplates has more pods than devices, which must not be given to two pods.
func TestSchedulerDevicesOfTemplates(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name, resourceclaims.Name)
	ctx := t.Context()
	c.deviceClass("gpus")
	for _, node := range []string{"one", "two"} {
		c.node(node, "32")
		c.slice(node, "a", "b", "c", "d", "e")
	}
	if _, err := c.ResourceV1().ResourceClaimTemplates("default").Create(ctx,
		&resourcev1.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
			Spec:       resourcev1.ResourceClaimTemplateSpec{Spec: schedulerRequest("gpus")},
		}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const pods = 12
	for i := range pods {
		c.pod(string(rune('a'+i)), "100m", func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{
				Name: "gpu", ResourceClaimTemplateName: new("gpu"),
			}}
		})
	}
	var bound, refused map[string]bool
	awaitPods := func(waiting int) {
		t.Helper()
		workloadtest.Until(t, func(ctx context.Context) string {
			list, err := c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			workloadtest.OK(t, err)
			bound, refused = map[string]bool{}, map[string]bool{}
			for _, p := range list.Items {
				if p.Spec.NodeName != "" {
					bound[p.Name] = true
				} else if podCondition(&p, corev1.PodScheduled).Reason == corev1.PodReasonUnschedulable {
					refused[p.Name] = true
				}
			}
			if len(list.Items) != 10+waiting || len(bound) != 10 || len(refused) != waiting {
				return fmt.Sprintf("on nodes: %v, refused: %v", bound, refused)
			}
			return ""
		})
	}
	awaitPods(2)
	claims, err := c.ResourceV1().ResourceClaims("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]string{}
	for _, claim := range claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		device := claim.Status.Allocation.Devices.Results[0]
		if other := used[device.Pool+"/"+device.Device]; other != "" {
			t.Errorf("%s and %s have the device %s/%s", claim.Name, other, device.Pool, device.Device)
		}
		used[device.Pool+"/"+device.Device] = claim.Name
	}
	for name := range bound {
		c.delete(name)
		break
	}
	// A deleted pod makes room for one of the refused.
	awaitPods(1)
}
