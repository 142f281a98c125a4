package simulated

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// claim is what a pod takes of its node.
type claim struct {
	generation int64 // of the pod, whose requests may change
	requests   corev1.ResourceList
	ports      []hostPort
}

type hostPort struct {
	protocol corev1.Protocol
	port     int32
	ip       string
}

const everyIP = "0.0.0.0"

func claimOf(p *corev1.Pod) claim {
	c := claim{
		generation: p.Generation, requests: resource.PodRequests(p, resource.PodResourcesOptions{}),
	}
	ports := func(of *corev1.Container) {
		for _, port := range of.Ports {
			if port.HostPort == 0 {
				continue
			}
			h := hostPort{port.Protocol, port.HostPort, port.HostIP}
			if h.ip == "" {
				h.ip = everyIP
			}
			c.ports = append(c.ports, h)
		}
	}
	for i := range p.Spec.Containers {
		ports(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		if kindOf(&p.Spec.InitContainers[i]) == sidecar {
			ports(&p.Spec.InitContainers[i])
		}
	}
	return c
}

// claims are those of all pods that a node has admitted and that have not ended. They are summed
// up, so that a further pod costs the same however many there are. Nodes.mu guards them.
type claims struct {
	pods  map[types.UID]claim
	used  corev1.ResourceList
	ports map[hostPort]int // how many pods have each; with a specific address also without it

	// turns are when the pods that the node does not take are rejected, and next is that of another
	// one.
	turns map[types.UID]time.Time
	next  time.Time
}

// rejectPause is the time between two pods that a node rejects. A ReplicaSet replaces each of them
// at once.
const rejectPause = 100 * time.Millisecond

// turn returns the time until a pod is rejected.
func (c *claims) turn(pod types.UID, now time.Time) time.Duration {
	at, ok := c.turns[pod]
	if !ok {
		if at = c.next; at.Before(now) {
			at = now
		}
		if c.turns == nil {
			c.turns = map[types.UID]time.Time{}
		}
		c.turns[pod], c.next = at, at.Add(rejectPause)
	}
	return at.Sub(now)
}

func (c *claims) put(pod types.UID, what claim) {
	c.remove(pod)
	if c.pods == nil {
		c.pods, c.used = map[types.UID]claim{}, corev1.ResourceList{}
		c.ports = map[hostPort]int{}
	}
	c.pods[pod] = what
	for name, amount := range what.requests {
		sum := c.used[name]
		sum.Add(amount)
		c.used[name] = sum
	}
	for _, p := range what.ports {
		c.count(p, 1)
	}
}

func (c *claims) remove(pod types.UID) {
	delete(c.turns, pod)
	what, ok := c.pods[pod]
	if !ok {
		return
	}
	delete(c.pods, pod)
	for name, amount := range what.requests {
		sum := c.used[name]
		sum.Sub(amount)
		c.used[name] = sum
	}
	for _, p := range what.ports {
		c.count(p, -1)
	}
}

func (c *claims) count(p hostPort, by int) {
	for _, p := range []hostPort{p, {protocol: p.protocol, port: p.port}} {
		if c.ports[p] += by; c.ports[p] == 0 {
			delete(c.ports, p)
		}
	}
}

// taken reports whether a port is in use, at its address or at every one.
func (c *claims) taken(p hostPort) bool {
	if p.ip == everyIP {
		return c.ports[hostPort{protocol: p.protocol, port: p.port}] > 0
	}
	return c.ports[p] > 0 || c.ports[hostPort{p.protocol, p.port, everyIP}] > 0
}

// lacking returns the first resource of which a node has not enough left for a pod. As a kubelet
// does, it leaves out those that are not known to the node.
func (c *claims) lacking(what claim, allocatable corev1.ResourceList) *rejection {
	pods, have := int64(len(c.pods)), allocatable[corev1.ResourcePods]
	if limit := have.Value(); pods+1 > limit {
		return insufficient(corev1.ResourcePods, 1, pods, limit)
	}
	names := []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	}
	for _, name := range slices.Sorted(maps.Keys(what.requests)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		have, known := allocatable[name]
		wanted, used := what.requests[name], c.used[name]
		sum := wanted.DeepCopy()
		sum.Add(used)
		if !known || wanted.IsZero() || sum.Cmp(have) <= 0 {
			continue
		}
		if name == corev1.ResourceCPU {
			return insufficient(name, wanted.MilliValue(), used.MilliValue(), have.MilliValue())
		}
		return insufficient(name, wanted.Value(), used.Value(), have.Value())
	}
	return nil
}

// rejection says why a node does not take a pod.
type rejection struct{ reason, message string }

func insufficient(name corev1.ResourceName, requested, used, capacity int64) *rejection {
	return &rejection{"OutOf" + string(name), fmt.Sprintf(
		"Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
		name, requested, used, capacity)}
}

func mismatch(predicate, why string) *rejection {
	return &rejection{predicate, fmt.Sprintf("Predicate %s failed: %s", predicate, why)}
}

// admitted reports whether a pod needs no decision of its node: a scheduler has chosen it, or the
// pod has begun.
func admitted(p *corev1.Pod) bool {
	return p.Status.StartTime != nil ||
		slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue
		})
}

// claim notes what an admitted pod takes of its node.
func (n *Nodes) claim(p *corev1.Pod) {
	if p.Spec.NodeName == "" || ended(p) || !admitted(p) {
		return
	}
	n.mu.Lock()
	has, ok := n.nodeOf(p.Spec.NodeName).claims.pods[p.UID]
	n.mu.Unlock()
	if ok && has.generation == p.Generation {
		return
	}
	what := claimOf(p)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodeOf(p.Spec.NodeName).claims.put(p.UID, what)
}

// admit decides about a pod that names its node itself. It returns nil if the node takes the pod.
// Otherwise the pod is rejected after wait, unless it is taken by then.
func (n *Nodes) admit(node *node, p *corev1.Pod) (r *rejection, wait time.Duration) {
	if admitted(p) {
		return nil, 0
	}
	found, err := n.nodes.Get(node.name)
	if err != nil {
		return nil, 0 // without a node, nothing becomes of the pod
	}
	what := claimOf(p)
	suits, _ := nodeaffinity.GetRequiredNodeAffinity(p).Match(found) // invalid terms match nothing
	_, evicts := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), found.Spec.Taints,
		p.Spec.Tolerations, func(t *corev1.Taint) bool {
			return t.Effect == corev1.TaintEffectNoExecute
		}, true)
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := node.claims.pods[p.UID]; ok || node.pods[keyOf(p)] != p.UID {
		return nil, 0 // it was admitted a moment ago, or is gone
	}
	r = node.claims.lacking(what, found.Status.Allocatable)
	switch {
	case r != nil:
	case !suits:
		r = mismatch("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	case slices.ContainsFunc(what.ports, node.claims.taken):
		r = mismatch("NodePorts", "node(s) didn't have free ports for the requested pod ports")
	case evicts:
		r = mismatch("TaintToleration", "node(s) had taints that the pod didn't tolerate")
	default:
		node.claims.put(p.UID, what)
		return nil, 0
	}
	return r, node.claims.turn(p.UID, time.Now())
}

// reject makes a pod fail that its node does not take.
func (n *Nodes) reject(ctx context.Context, p *corev1.Pod, r *rejection) error {
	status, now := p.Status.DeepCopy(), metav1.Now()
	status.Phase, status.StartTime = corev1.PodFailed, &now
	status.Reason, status.Message = r.reason, "Pod was rejected: "+r.message
	status.ObservedGeneration = p.Generation
	return n.write(ctx, p, status)
}
