package looptest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kinproc/kinproc/server/internal/controllers/nodes/scheduler"
	"github.com/kinproc/kinproc/server/internal/controllers/volumes/resourceclaims"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// refusedAs waits until a pod has a condition with a reason and a message.
func (c schedulerCluster) refusedAs(name, reason, message string) {
	c.tb.Helper()
	c.await(name, "refused with: "+message, func(p *corev1.Pod) bool {
		condition := podCondition(p, corev1.PodScheduled)
		return condition.Reason == reason && condition.Message == message
	})
}

func (c schedulerCluster) patchClaim(name, status string) {
	c.tb.Helper()
	workloadtest.Must(c.ResourceV1().ResourceClaims("default").Patch(c.tb.Context(), name,
		types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status"))(c.tb)
}

func schedulerOn(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
}

// TestSchedulerExtendedResources has a node with a resource, and another one with devices that a
// class offers as the same resource.
func TestSchedulerExtendedResources(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name, resourceclaims.Name)
	const name = "example.com/gpu"
	gpus := func(amount string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(amount)
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse(amount)}
		}
	}
	c.node("plain", "4")
	c.patchNodeStatus("plain", `{"allocatable":{"`+name+`":"1"},"capacity":{"`+name+`":"1"}}`)
	c.node("devices", "4")
	c.pod("large", "1", gpus("2"))
	c.refused("large", "0/2 nodes are available: 2 Insufficient example.com/gpu."+
		fmt.Sprintf(schedulerUnhelpful, 2, 2))
	c.slice("devices", "a", "b")
	workloadtest.Must(c.ResourceV1().DeviceClasses().Create(t.Context(), &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gpus"},
		Spec:       resourcev1.DeviceClassSpec{ExtendedResourceName: new(name)},
	}, metav1.CreateOptions{}))(t)
	if node := c.on("large"); node != "devices" {
		t.Errorf("the pod is on the node %s", node)
	}
	large := c.await("large", "there", func(*corev1.Pod) bool { return true })
	status := large.Status.ExtendedResourceClaimStatus
	if status == nil || len(status.RequestMappings) != 1 || status.RequestMappings[0] !=
		(corev1.ContainerExtendedResourceRequest{
			ContainerName: "c", ResourceName: name, RequestName: "container-0-request-1",
		}) {
		t.Fatalf("the status of the pod is %+v", status)
	}
	claim := workloadtest.Must(c.ResourceV1().ResourceClaims("default").Get(t.Context(),
		status.ResourceClaimName, metav1.GetOptions{}))(t)
	if owner := metav1.GetControllerOf(claim); owner == nil || owner.UID != large.UID ||
		claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" ||
		!strings.HasPrefix(claim.Name, "large-extended-resources-") ||
		claim.Status.Allocation.AllocationTimestamp == nil {
		t.Errorf("the claim is %+v", claim)
	}
	if device := c.allocated(claim.Name, 1); device != "a" {
		t.Errorf("the first device is %s", device)
	}

	// The resource of a node needs no claim.
	c.pod("small", "1", gpus("1"))
	if node := c.on("small"); node != "plain" {
		t.Errorf("the pod is on the node %s", node)
	}
	small := c.await("small", "there", func(*corev1.Pod) bool { return true })
	if small.Status.ExtendedResourceClaimStatus != nil {
		t.Error("a pod has a claim for the resource of a node")
	}
	c.pod("late", "1", gpus("1"))
	c.refused("late", "0/2 nodes are available: 1 Insufficient example.com/gpu, "+
		"1 cannot allocate all claims. preemption: 0/2 nodes are available: "+
		"1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.")
	c.delete("large")
	c.on("late")
}

func (c schedulerCluster) patchNodeStatus(name, status string) {
	c.tb.Helper()
	workloadtest.Must(c.CoreV1().Nodes().Patch(c.tb.Context(), name, types.MergePatchType,
		[]byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status"))(c.tb)
}

// TestSchedulerBindingConditions has devices that are not ready at once, and one that never is.
func TestSchedulerBindingConditions(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name, resourceclaims.Name)
	c.deviceClass("gpus")
	for _, node := range []string{"one", "two"} {
		c.node(node, "4")
		workloadtest.Must(c.ResourceV1().ResourceSlices().Create(t.Context(),
			&resourcev1.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: node},
				Spec: resourcev1.ResourceSliceSpec{
					Driver: "gpu.example.com", NodeName: &node,
					Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
					Devices: []resourcev1.Device{{
						Name: "d", BindsToNode: new(true), BindingConditions: []string{"ready"},
						BindingFailureConditions: []string{"failed"},
					}},
				},
			}, metav1.CreateOptions{}))(t)
	}
	condition := func(claim, node, kind string) {
		c.patchClaim(claim, `{"devices":[{"driver":"gpu.example.com","pool":"`+node+
			`","device":"d","conditions":[{"type":"`+kind+`","status":"True","reason":"R",`+
			`"message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}]}`)
	}
	c.deviceClaim("first", schedulerRequest("gpus"))
	c.pod("first", "1", schedulerNeeding("first"), schedulerOn("one"))
	c.allocated("first", 1)
	c.event("first", "BindingConditionsPending",
		"waiting for binding conditions for device on node one")
	c.await("first", "nominated", func(p *corev1.Pod) bool {
		return p.Status.NominatedNodeName == "one" && p.Spec.NodeName == ""
	})
	condition("first", "one", "ready")
	c.on("first")

	// A device that fails is given back, and the next attempt gets another one.
	c.deviceClaim("second", schedulerRequest("gpus"))
	c.pod("second", "1", schedulerNeeding("second"))
	c.allocated("second", 1)
	c.delete("first")
	workloadtest.OK(t, c.ResourceV1().ResourceClaims("default").Delete(t.Context(), "first",
		metav1.DeleteOptions{}))
	workloadtest.Must(c.ResourceV1().ResourceSlices().Patch(t.Context(), "two", types.JSONPatchType,
		[]byte(`[{"op":"add","path":"/spec/devices/0/taints",`+
			`"value":[{"key":"k","effect":"NoSchedule"}]}]`), metav1.PatchOptions{}))(t)
	condition("second", "two", "failed")
	c.event("second", "FailedScheduling", `running PreBind plugin "DynamicResources": `+
		`device binding failed: claim=second, reason=R, message="m"`)
	c.event("second", "FailedScheduling", "0/2 nodes are available: "+
		"2 resourceclaim not available on the node. deallocation of ResourceClaim completed, "+
		"preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.")
	workloadtest.Await(t, "the claim has the other device",
		func(ctx context.Context) (*resourcev1.ResourceClaim, error) {
			return c.ResourceV1().ResourceClaims("default").Get(ctx, "second", metav1.GetOptions{})
		}, func(claim *resourcev1.ResourceClaim) bool {
			return claim.Status.Allocation != nil &&
				claim.Status.Allocation.Devices.Results[0].Pool == "one"
		})
	condition("second", "one", "ready")
	if node := c.on("second"); node != "one" {
		t.Errorf("the pod is on the node %s", node)
	}
}

// TestSchedulerDeviceTaintRules has a device that a rule taints.
func TestSchedulerDeviceTaintRules(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name)
	c.node("one", "4")
	c.deviceClass("gpus")
	rules := c.ResourceV1().DeviceTaintRules()
	workloadtest.Must(rules.Create(t.Context(), &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "rule"},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Device: new("a")},
			Taint: resourcev1.DeviceTaint{
				Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule,
			},
		},
	}, metav1.CreateOptions{}))(t)
	c.slice("one", "a", "b")
	c.deviceClaim("one", schedulerRequest("gpus"))
	c.pod("one", "1", schedulerNeeding("one"))
	c.on("one")
	if device := c.allocated("one", 1); device != "b" {
		t.Errorf("the claim has the device %s, which a rule taints", device)
	}
	c.deviceClaim("two", schedulerRequest("gpus"))
	c.pod("two", "1", schedulerNeeding("two"))
	c.refused("two", "0/1 nodes are available: 1 cannot allocate all claims."+
		fmt.Sprintf(schedulerUnhelpful, 1, 1))
	workloadtest.OK(t, rules.Delete(t.Context(), "rule", metav1.DeleteOptions{}))
	c.on("two")
}

// TestSchedulerDeallocation has a claim that nobody uses and that got a device of another node.
func TestSchedulerDeallocation(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name)
	c.deviceClass("gpus")
	for _, node := range []string{"one", "two"} {
		c.node(node, "4")
		c.slice(node, "a")
	}
	c.deviceClaim("claim", schedulerRequest("gpus"))
	c.pod("first", "1", schedulerNeeding("claim"), schedulerOn("one"))
	c.on("first")
	c.pod("second", "1", schedulerNeeding("claim"), schedulerOn("two"))
	const reasons = "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, " +
		"1 resourceclaim not available on the node."
	c.refused("second", reasons+fmt.Sprintf(schedulerUnhelpful, 2, 2))
	c.patchClaim("claim", `{"reservedFor":null}`)
	c.event("second", "FailedScheduling", reasons+" deallocation of ResourceClaim completed,"+
		fmt.Sprintf(schedulerUnhelpful, 2, 2))
	c.on("second")
}

// TestSchedulerBrokenSelector has a claim about which no answer can be given.
func TestSchedulerBrokenSelector(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name)
	c.node("one", "4")
	c.deviceClass("gpus")
	c.slice("one", "a")
	c.deviceClaim("claim", schedulerRequest("gpus",
		`device.attributes["gpu.example.com"].nothing == 1`))
	c.pod("pod", "1", schedulerNeeding("claim"))
	c.refusedAs("pod", corev1.PodReasonSchedulerError, `running "DynamicResources" filter plugin: `+
		"claim default/claim: selector #0 on device gpu.example.com/one/a: CEL runtime error: "+
		"no such key: nothing. consider using CEL optional chaining (.? followed by orValue()) or "+
		"guarding the check with has() for optional fields")
}

// TestSchedulerFullClaim has a claim that is reserved for as many pods as can share it.
func TestSchedulerFullClaim(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name)
	c.node("one", "4")
	c.deviceClass("gpus")
	c.slice("one", "a")
	c.deviceClaim("claim", schedulerRequest("gpus"))
	c.pod("first", "1", schedulerNeeding("claim"))
	c.on("first")
	var others []string
	for i := range resourcev1.ResourceClaimReservedForMaxSize {
		others = append(others, fmt.Sprintf(`{"resource":"pods","name":"p%d","uid":"u%d"}`, i, i))
	}
	c.patchClaim("claim", `{"reservedFor":[`+strings.Join(others, ",")+`]}`)
	c.pod("second", "1", schedulerNeeding("claim"))
	c.refusedAs("second", corev1.PodReasonSchedulerError,
		`running PreBind plugin "DynamicResources": `+
			`add reservation to claim default/claim: ResourceClaim.resource.k8s.io "claim" is invalid: `+
			"status.reservedFor: Too many: 257: must have at most 256 items")
	c.patchClaim("claim", `{"reservedFor":null}`)
	c.on("second")
}

// TestSchedulerDeclaredFeatures has a pod that needs a feature of its node.
func TestSchedulerDeclaredFeatures(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name)
	c.node("one", "4")
	c.pod("pod", "1", func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		container := &p.Spec.Containers[0]
		container.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
		container.RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action: corev1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
				Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1},
			},
		}}
	})
	c.refused("pod", "0/1 nodes are available: 1 node(s) didn't match Pod's required features."+
		fmt.Sprintf(schedulerUnhelpful, 1, 1))
	c.patchNodeStatus("one", `{"declaredFeatures":["RestartAllContainersOnContainerExits"]}`)
	c.on("pod")
}
