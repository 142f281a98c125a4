package looptest

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// nodesGPU and nodesFPGA are extended resources, which only others know.
const (
	nodesGPU  = corev1.ResourceName("example.com/gpu")
	nodesFPGA = corev1.ResourceName("example.com/fpga")
)

// nodesOne starts a control plane with one simulated node, and waits until it is there.
func nodesOne(t *testing.T, configure ...func(*server.Options)) kubernetes.Interface {
	t.Helper()
	s := servertest.Run(t, append(configure, servertest.Workloads)...)
	client := workloadtest.Client(t, s)
	nodesAwaitOne(t, client, "ready", func(n *corev1.Node) bool {
		return nodesCondition(n, corev1.NodeReady) == corev1.ConditionTrue
	})
	return client
}

func nodesAwaitOne(
	t *testing.T, client kubernetes.Interface, what string, wanted func(*corev1.Node) bool,
) *corev1.Node {
	t.Helper()
	return workloadtest.Await(t, "node "+what, func(ctx context.Context) (*corev1.Node, error) {
		n, err := client.CoreV1().Nodes().Get(ctx, "simulated-0", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return &corev1.Node{}, nil
		}
		return n, err
	}, wanted)
}

func nodesPatch(t *testing.T, client kubernetes.Interface, patch string, subresources ...string) {
	t.Helper()
	workloadtest.Must(client.CoreV1().Nodes().Patch(t.Context(), "simulated-0",
		types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...))(t)
}

// TestNodesKeepWhatOthersReport reports about a simulated node what a device plugin, a detector of
// problems and a cloud would.
func TestNodesKeepWhatOthersReport(t *testing.T) {
	t.Parallel()
	client := nodesOne(t, func(o *server.Options) {
		o.SimulatedNodeCapacity = corev1.ResourceList{nodesFPGA: resource.MustParse("2")}
	})
	nodesPatch(t, client, `{"metadata":{"annotations":{"example.com/by":"others"}},"status":{
		"capacity":{"example.com/gpu":"4","cpu":"1"},
		"conditions":[{"type":"KernelDeadlock","status":"False"}],
		"addresses":[{"type":"ExternalIP","address":"192.0.2.1"}],
		"nodeInfo":{"bootID":"b"}}}`, "status")
	kept := func(n *corev1.Node) bool {
		external := slices.Contains(n.Status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.1"})
		return n.Annotations["example.com/by"] == "others" && external && len(n.Status.Addresses) == 3 &&
			nodesCondition(n, "KernelDeadlock") == corev1.ConditionFalse &&
			n.Status.NodeInfo.BootID == "b" && n.Status.NodeInfo.OperatingSystem == "linux" &&
			nodesAmount(n.Status.Capacity, nodesGPU) == 4 &&
			nodesAmount(n.Status.Allocatable, nodesGPU) == 4 &&
			nodesAmount(n.Status.Allocatable, nodesFPGA) == 2 &&
			n.Status.Allocatable.Cpu().Value() == 32
	}
	nodesAwaitOne(t, client, "with what others reported", kept)

	nodesPatch(t, client, `{"metadata":{"annotations":{"kinproc.dev/not-ready":"true"}}}`)
	n := nodesAwaitOne(t, client, "not ready", func(n *corev1.Node) bool {
		return nodesCondition(n, corev1.NodeReady) == corev1.ConditionFalse
	})
	if !kept(n) {
		t.Errorf("as the node wrote its status, it lost what others had reported: %+v", n.Status)
	}
	nodesPatch(t, client, `{"metadata":{"annotations":{"kinproc.dev/not-ready":null}}}`)

	pods := client.CoreV1().Pods("default")
	create := func(name string, of corev1.ResourceName, count string) {
		t.Helper()
		list := corev1.ResourceList{of: resource.MustParse(count)}
		workloadtest.Must(pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: list, Limits: list},
			}}},
		}, metav1.CreateOptions{}))(t)
	}
	is := func(name string, wanted func(*corev1.Pod) bool) {
		t.Helper()
		workloadtest.Await(t, name, func(ctx context.Context) (*corev1.Pod, error) {
			return pods.Get(ctx, name, metav1.GetOptions{})
		}, wanted)
	}
	running := func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }
	create("three", nodesGPU, "3")
	create("flag", nodesFPGA, "2")
	is("three", running)
	is("flag", running)
	create("two-more", nodesGPU, "2")
	is("two-more", func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
		})
	})

	nodesPatch(t, client, `{"status":{"capacity":{"example.com/gpu":null}}}`, "status")
	nodesAwaitOne(t, client, "without the resource", func(n *corev1.Node) bool {
		_, ok := n.Status.Allocatable[nodesGPU]
		return !ok
	})
}

func nodesAmount(list corev1.ResourceList, name corev1.ResourceName) int64 {
	q := list[name]
	return q.Value()
}
