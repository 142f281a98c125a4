package simulated

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/restartallcontainers"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// DefaultCapacity returns the capacity of a node for resources of which nothing else is said.
func DefaultCapacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("32"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
}

func withDefaults(capacity corev1.ResourceList) corev1.ResourceList {
	all := DefaultCapacity()
	maps.Copy(all, capacity)
	return all
}

// syncNode registers a node, or makes its status that of a node that works.
func (n *Nodes) syncNode(ctx context.Context, node *node) error {
	client := n.Client.CoreV1().Nodes()
	found, err := n.nodes.Get(node.name)
	if apierrors.IsNotFound(err) {
		if !n.missing(node) {
			return nil
		}
		found, err = client.Create(ctx, n.newNode(node), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the informer will tell
		}
		if err == nil {
			n.nodeSeen(found) // there may be pods already, and the next steps need not wait
		}
	}
	if err != nil || !isSimulated(found) || found.Annotations[stoppedAnnotation] == "true" {
		return err
	}
	if found, err = n.ensureKind(ctx, node, found); err != nil {
		return loop.IgnoreChanged(err)
	}
	wanted := found.DeepCopy()
	n.setStatus(wanted, node)
	if !equality.Semantic.DeepEqual(found.Status, wanted.Status) {
		if wanted, err = n.patchStatus(ctx, found, wanted); err != nil {
			return loop.IgnoreChanged(err)
		}
	}
	return loop.IgnoreChanged(n.untaint(ctx, wanted))
}

// patchStatus writes what differs in the status of a node between two versions of it. The rest
// stays as it is by now: others report there what a kubelet does not know.
func (n *Nodes) patchStatus(ctx context.Context, from, to *corev1.Node) (*corev1.Node, error) {
	from = from.DeepCopy()
	from.UID = "" // so that the patch has the UID, and does not apply to another node of that name
	before, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("patch of node %s: %w", to.Name, err)
	}
	return n.Client.CoreV1().Nodes().Patch(ctx, to.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
}

func (n *Nodes) missing(node *node) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return node.missing
}

// untaint removes the taint with which admission has created a node. The controller of nodes would
// do that too, but it may be off.
func (n *Nodes) untaint(ctx context.Context, found *corev1.Node) error {
	if found.Annotations[notReadyAnnotation] == "true" {
		return nil
	}
	wanted := found.DeepCopy()
	wanted.Spec.Taints = slices.DeleteFunc(wanted.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
	})
	if len(wanted.Spec.Taints) == len(found.Spec.Taints) {
		return nil
	}
	_, err := n.Client.CoreV1().Nodes().Update(ctx, wanted, metav1.UpdateOptions{})
	return err
}

func (n *Nodes) newNode(node *node) *corev1.Node {
	cidr := n.ranges.pod(node.index).String()
	created := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.name,
			Labels: map[string]string{
				Label:                     "true",
				corev1.LabelHostname:      node.name,
				corev1.LabelOSStable:      "linux",
				corev1.LabelArchStable:    runtime.GOARCH,
				"beta.kubernetes.io/os":   "linux",
				"beta.kubernetes.io/arch": runtime.GOARCH,
			},
		},
		Spec: corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
	}
	created.Status.DeclaredFeatures = []string{restartallcontainers.Feature.Name()}
	node.kind.setKind(created)
	n.setStatus(created, node)
	return created
}

// setStatus sets the parts of the status that a kubelet keeps up to date. What others have set
// stays, and as on a kubelet, what they add to the capacity is allocatable.
func (n *Nodes) setStatus(of *corev1.Node, node *node) {
	s := &of.Status
	if s.Capacity == nil {
		s.Capacity = corev1.ResourceList{}
	}
	maps.Copy(s.Capacity, node.capacity.DeepCopy())
	s.Allocatable = s.Capacity.DeepCopy()
	setAddress(s, corev1.NodeInternalIP, n.ranges.host(node.index).String())
	setAddress(s, corev1.NodeHostName, node.name)
	s.DaemonEndpoints.KubeletEndpoint.Port = 10250
	info := &s.NodeInfo
	info.OperatingSystem, info.Architecture = "linux", runtime.GOARCH
	info.OSImage, info.KernelVersion = "simulated", "simulated"
	info.KubeletVersion, info.ContainerRuntimeVersion = n.Version, "simulated://kinproc"
	for _, c := range []corev1.NodeCondition{
		{
			Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse,
			Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available",
		},
		{
			Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse,
			Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure",
		},
		{
			Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse,
			Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available",
		},
		{
			Type: Condition, Status: corev1.ConditionTrue, Reason: "Simulated",
			Message: "kinproc simulates this node: there is no machine, and no containers run",
		},
		ready(of),
	} {
		setNodeCondition(s, c)
	}
}

func ready(of *corev1.Node) corev1.NodeCondition {
	if of.Annotations[notReadyAnnotation] == "true" {
		return corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady",
			Message: "the annotation " + notReadyAnnotation + " says so",
		}
	}
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		Message: "kubelet is posting ready status",
	}
}

func setAddress(s *corev1.NodeStatus, t corev1.NodeAddressType, address string) {
	i := slices.IndexFunc(s.Addresses, func(a corev1.NodeAddress) bool { return a.Type == t })
	if i < 0 {
		s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: t, Address: address})
		return
	}
	s.Addresses[i].Address = address
}

func setNodeCondition(s *corev1.NodeStatus, c corev1.NodeCondition) {
	now := metav1.NewTime(time.Now())
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	old := loop.FindCondition(s.Conditions, c.Type, loop.NodeConditions)
	if old != nil && old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
		c.LastHeartbeatTime = old.LastHeartbeatTime // the lease tells that the node is alive
	}
	loop.SetCondition(&s.Conditions, c, loop.NodeConditions)
}
