package simulated

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
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
func (n *Nodes) syncNode(ctx context.Context, name string) error {
	client := n.Client.CoreV1().Nodes()
	found, err := n.nodes.Get(name)
	node, missing, simulated := n.see(name, found)
	if apierrors.IsNotFound(err) {
		if !missing {
			return nil
		}
		found, err = client.Create(ctx, n.newNode(node), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the informer will tell
		}
		if err == nil {
			n.nodeSeen(found) // there may be pods already, and the next steps need not wait
			simulated = true
		}
	}
	if err != nil || !simulated || found.Annotations[stoppedAnnotation] == "true" {
		return err
	}
	if !n.place(node) {
		utilruntime.HandleErrorWithContext(ctx, errNoRange, "Node is left alone", "node", name)
		return nil
	}
	if found, err = n.prepare(ctx, node, found); err != nil {
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

// see returns the state of a node, whether it is to be registered, and whether it is simulated.
// Found is nil if it does not exist.
func (n *Nodes) see(name string, found *corev1.Node) (of *node, missing, simulated bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	of, ok := n.byName[name]
	if !ok {
		return nil, false, false
	}
	return of, of.missing, found != nil && n.simulates(of, found)
}

var errNoRange = errors.New("no range of addresses is left for the pods of the node")

// place gives a node a range of addresses if it has none. It reports whether there is one. Until
// the nodes of an earlier start have been seen, their ranges look free.
func (n *Nodes) place(node *node) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(node.indices) > 0 {
		return true
	}
	if n.byName[node.name] != node || !n.reserveNext(node) {
		return false
	}
	n.wake(node)
	n.leases.Enqueue(node.name)
	return true
}

// prepare gives a node that an earlier start has registered the labels and taints of its kind, and
// a node of others what a kubelet and the controllers of a cloud would, unless its maker did. That
// is done once, so that what somebody changes afterwards stays.
func (n *Nodes) prepare(
	ctx context.Context, node *node, found *corev1.Node,
) (*corev1.Node, error) {
	n.mu.Lock()
	done := node.prepared || node.own && node.kind == nil
	n.mu.Unlock()
	if done {
		return found, nil
	}
	wanted := found.DeepCopy()
	if node.own {
		node.kind.setKind(wanted)
	} else {
		if wanted.Labels == nil {
			wanted.Labels = map[string]string{}
		}
		for key, value := range labelsOf(wanted) {
			if _, ok := wanted.Labels[key]; !ok {
				wanted.Labels[key] = value
			}
		}
		if wanted.Spec.PodCIDR == "" {
			cidr := n.ranges.pod(node.index).String()
			wanted.Spec.PodCIDR, wanted.Spec.PodCIDRs = cidr, []string{cidr}
		}
	}
	if !equality.Semantic.DeepEqual(found, wanted) {
		var err error
		wanted, err = n.Client.CoreV1().Nodes().Update(ctx, wanted, metav1.UpdateOptions{})
		if err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	node.prepared = wanted.UID == node.uid
	return wanted, nil
}

// labelsOf returns the labels that a kubelet gives to its node.
func labelsOf(of *corev1.Node) map[string]string {
	system, architecture := platform(of)
	return map[string]string{
		corev1.LabelHostname:      of.Name,
		corev1.LabelOSStable:      system,
		corev1.LabelArchStable:    architecture,
		"beta.kubernetes.io/os":   system,
		"beta.kubernetes.io/arch": architecture,
	}
}

// platform returns the operating system and the architecture of a node, which its maker may have
// chosen.
func platform(of *corev1.Node) (system, architecture string) {
	info := &of.Status.NodeInfo
	return cmp.Or(info.OperatingSystem, of.Labels[corev1.LabelOSStable], "linux"),
		cmp.Or(info.Architecture, of.Labels[corev1.LabelArchStable], runtime.GOARCH)
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
		ObjectMeta: metav1.ObjectMeta{Name: node.name},
		Spec:       corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
	}
	created.Labels = labelsOf(created)
	created.Labels[Label] = "true"
	created.Status.DeclaredFeatures = []string{restartallcontainers.Feature.Name()}
	node.kind.setKind(created)
	n.setStatus(created, node)
	return created
}

// setStatus sets the parts of the status that a kubelet keeps up to date. What others have set
// stays, and as on a kubelet, what they add to the capacity is allocatable.
func (n *Nodes) setStatus(of *corev1.Node, node *node) {
	if node.own && of.Labels[Label] == "true" && !isKwoks(of) {
		n.setOwn(of, node)
	} else {
		n.complete(of, node)
	}
}

// setOwn sets the status of a node that this package has made.
func (n *Nodes) setOwn(of *corev1.Node, node *node) {
	s := &of.Status
	if s.Capacity == nil {
		s.Capacity = corev1.ResourceList{}
	}
	maps.Copy(s.Capacity, node.capacity.DeepCopy())
	s.Allocatable = s.Capacity.DeepCopy()
	setAddress(s, corev1.NodeInternalIP, n.ranges.host(node.index).String())
	setAddress(s, corev1.NodeHostName, node.name)
	s.DaemonEndpoints.KubeletEndpoint.Port = kubeletPort
	info := &s.NodeInfo
	info.OperatingSystem, info.Architecture = "linux", runtime.GOARCH
	info.OSImage, info.KernelVersion = simulatedInfo, simulatedInfo
	info.KubeletVersion, info.ContainerRuntimeVersion = n.Version, simulatedRuntime
	for _, c := range append(conditions(), ready(of)) {
		setNodeCondition(s, c)
	}
}

const (
	kubeletPort      = 10250
	simulatedInfo    = "simulated"
	simulatedRuntime = "simulated://kinproc"
)

// complete sets the parts of the status that the maker of a node has left out. Whether the node is
// ready is not up to its maker. What the controller of nodes has said while nobody renewed the
// lease no longer holds.
func (n *Nodes) complete(of *corev1.Node, node *node) {
	s := &of.Status
	if s.Capacity == nil {
		s.Capacity = corev1.ResourceList{}
	}
	if s.Allocatable == nil {
		s.Allocatable = corev1.ResourceList{}
	}
	for name := range DefaultCapacity() {
		if _, ok := s.Capacity[name]; ok {
			continue
		}
		if amount, ok := s.Allocatable[name]; ok {
			s.Capacity[name] = amount
		} else {
			s.Capacity[name] = n.Capacity[name]
		}
	}
	for name, amount := range s.Capacity {
		if _, ok := s.Allocatable[name]; !ok {
			s.Allocatable[name] = amount
		}
	}
	if addressOf(of) == "" {
		setAddress(s, corev1.NodeInternalIP, n.ranges.host(node.index).String())
	}
	if !slices.ContainsFunc(s.Addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeHostName
	}) {
		setAddress(s, corev1.NodeHostName, of.Name)
	}
	port := &s.DaemonEndpoints.KubeletEndpoint.Port
	*port = cmp.Or(*port, kubeletPort)
	info := &s.NodeInfo
	info.OperatingSystem, info.Architecture = platform(of)
	info.OSImage = cmp.Or(info.OSImage, simulatedInfo)
	info.KernelVersion = cmp.Or(info.KernelVersion, simulatedInfo)
	info.KubeletVersion = cmp.Or(info.KubeletVersion, n.Version)
	info.ContainerRuntimeVersion = cmp.Or(info.ContainerRuntimeVersion, simulatedRuntime)
	for _, c := range conditions() {
		old := loop.FindCondition(s.Conditions, c.Type, loop.NodeConditions)
		if old == nil || old.Status == corev1.ConditionUnknown {
			setNodeCondition(s, c)
		}
	}
	c, old := ready(of), loop.FindCondition(s.Conditions, corev1.NodeReady, loop.NodeConditions)
	if old == nil || old.Status != c.Status {
		setNodeCondition(s, c)
	}
}

// addressOf returns the address of a node, or nothing if it has none yet.
func addressOf(of *corev1.Node) string {
	for _, a := range of.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// conditions are those of a node that lacks nothing, without [corev1.NodeReady].
func conditions() []corev1.NodeCondition {
	return []corev1.NodeCondition{
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
