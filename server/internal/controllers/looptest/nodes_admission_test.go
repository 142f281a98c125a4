package looptest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestNodesRejectPods has pods that name their node themselves, which does not take all of them.
// The messages are those of a kubelet.
func TestNodesRejectPods(t *testing.T) {
	t.Parallel()
	client := nodesOne(t, func(o *server.Options) {
		o.SimulatedNodeCapacity = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("5"),
		}
	})
	port := func(protocol corev1.Protocol, ip string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{
				ContainerPort: 80, HostPort: 80, HostIP: ip, Protocol: protocol,
			}}
		}
	}
	asks := func(name corev1.ResourceName, amount string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			list := corev1.ResourceList{name: resource.MustParse(amount)}
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
		}
	}
	on := func(os string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: os} }
	}
	runs := func(name string, change ...func(*corev1.Pod)) {
		t.Helper()
		nodesCreatePod(t, client, nodesPod(name, change...))
		nodesAwaitPod(t, client, name, nodesPodPhase(corev1.PodRunning))
	}
	rejected := func(name, reason, message string, change ...func(*corev1.Pod)) {
		t.Helper()
		nodesCreatePod(t, client, nodesPod(name, change...))
		p := nodesAwaitPod(t, client, name, nodesPodPhase(corev1.PodFailed))
		if p.Status.Reason != reason || p.Status.Message != "Pod was rejected: "+message ||
			p.Status.StartTime == nil || len(p.Status.ContainerStatuses) > 0 {
			t.Errorf("%s is %+v", name, p.Status)
		}
	}
	goes := func(name string) {
		t.Helper()
		workloadtest.OK(t, client.CoreV1().Pods("default").Delete(t.Context(), name,
			metav1.DeleteOptions{}))
		nodesAwaitPodGone(t, client, name)
	}
	const taken = "Predicate NodePorts failed: " +
		"node(s) didn't have free ports for the requested pod ports"
	runs("tcp", port(corev1.ProtocolTCP, "192.0.2.1"))
	runs("elsewhere", port(corev1.ProtocolTCP, "192.0.2.2"))
	runs("udp", port(corev1.ProtocolUDP, ""), asks("cpu", "3"))
	rejected("same", "NodePorts", taken, port(corev1.ProtocolTCP, "192.0.2.1"))
	rejected("everywhere", "NodePorts", taken, port(corev1.ProtocolTCP, ""))
	rejected("somewhere", "NodePorts", taken, port(corev1.ProtocolUDP, "192.0.2.3"))
	rejected("large", "OutOfcpu",
		"Node didn't have enough resource: cpu, requested: 1500, used: 3000, capacity: 4000",
		asks("cpu", "1500m"))
	rejected("windows", "NodeAffinity",
		"Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector", on("windows"))
	goes("udp")
	runs("udp-again", port(corev1.ProtocolUDP, "192.0.2.3"), asks("cpu", "3500m"), on("linux"))
	runs("unknown", asks("example.com/gpu", "1")) // as on a node without that device plugin
	runs("ends", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
	rejected("sixth", "OutOfpods",
		"Node didn't have enough resource: pods, requested: 1, used: 5, capacity: 5")
	workloadtest.Must(client.CoreV1().Pods("default").Patch(t.Context(), "ends", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"kinproc.dev/run-for":"1ms"}}}`), metav1.PatchOptions{}))(t)
	nodesAwaitPod(t, client, "ends", nodesPodPhase(corev1.PodSucceeded))
	runs("seventh")
}
