// Package nodelifecycle notices when nodes are no longer heard of, and says with taints what the
// conditions of nodes mean for pods.
//
// The taints that evict pods are put on one node of a zone after the other. If more than half of a
// zone is not ready, they come later or not at all, and if no node is ready, they are removed.
package nodelifecycle

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "node-lifecycle-controller"

// Patience is how long nodes may not be heard of.
type Patience struct {
	// Grace is the time after which a node counts as unreachable. StartupGrace is the same for a
	// node that has never said whether it is ready.
	Grace, StartupGrace time.Duration
	// EvictAfter is how long a node has not been ready when its pods are evicted. Until then, it
	// turns out whether others fail with it.
	EvictAfter time.Duration
	// Pause is the time between two such nodes of a zone, and SlowPause that in a large zone most
	// of whose nodes are not ready.
	Pause, SlowPause time.Duration
}

// Loop is the loop of the conditions and taints of nodes.
func Loop() loop.Loop {
	return With(Patience{ // as in kube-controller-manager, which looks every 5 s though
		Grace: 50 * time.Second, StartupGrace: 60 * time.Second, EvictAfter: time.Second,
		Pause: 10 * time.Second, SlowPause: 100 * time.Second,
	})
}

// With returns the loop with another patience.
func With(patience Patience) loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "nodelifecycle", Component: "node-controller",
		Purpose:  "taints nodes that are not ready or have stopped reporting",
		Workload: true, Workers: 4,
		After: []schema.GroupResource{corev1.Resource("nodes")},
		Begin: func(l *loop.Controller) loop.Work { return begin(l, patience) },
	}
}

type controller struct {
	*loop.Controller
	Patience
	nodes  corelisters.NodeLister
	pods   cache.Indexer
	leases coordinationlisters.LeaseNamespaceLister
	zones  *zones

	mu sync.Mutex
	// heard is when each node was last heard of.
	heard map[string]sign
}

func begin(l *loop.Controller, patience Patience) loop.Work {
	c := &controller{
		Controller: l, Patience: patience, heard: map[string]sign{},
		nodes: corelisters.NewNodeLister(l.Indexer(&corev1.Node{})),
		pods:  l.Indexer(&corev1.Pod{}),
		leases: coordinationlisters.NewLeaseLister(l.Indexer(&coordinationv1.Lease{})).
			Leases(corev1.NamespaceNodeLease),
		zones: newZones(patience),
	}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.On(l.Informer(&corev1.Node{}), func(old, n *corev1.Node) {
			if n == nil {
				c.nodeGone(old)
			} else {
				c.nodeSeen(n)
			}
		}),
		pods.WithNodes(loop.On(l.Informer(&corev1.Pod{}), func(_, p *corev1.Pod) {
			if p != nil {
				c.podSeen(p)
			}
		})),
		loop.On(l.Informer(&coordinationv1.Lease{}),
			func(_, l *coordinationv1.Lease) {
				if l != nil {
					c.leaseSeen(l)
				}
			}),
	}}
}

// sign is a sign of life of a node.
type sign struct {
	at time.Time
	// renewed and heartbeat are the times that the node wrote, by its own clock.
	renewed, heartbeat time.Time
	// leased is how long the node wants to be believed alive, if longer than the grace.
	leased time.Duration
}

func (s *sign) renew(l *coordinationv1.Lease) {
	s.renewed = l.Spec.RenewTime.Time
	s.leased = time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
}

func (c *controller) nodeSeen(n *corev1.Node) {
	var heartbeat time.Time
	if ready := condition(n, corev1.NodeReady); ready != nil {
		heartbeat = ready.LastHeartbeatTime.Time
	}
	c.mu.Lock()
	s, known := c.heard[n.Name]
	if !known {
		// The lease may have been seen before the node, and the next renewal may be a long time
		// away.
		if l, err := c.leases.Get(n.Name); err == nil && l.Spec.RenewTime != nil {
			s.renew(l)
		}
	}
	if !known || !s.heartbeat.Equal(heartbeat) {
		s.heartbeat, s.at = heartbeat, time.Now()
		c.heard[n.Name] = s
	}
	c.mu.Unlock()
	if !known {
		c.event(n, "RegisteredNode", "Node %s event: Registered Node %s in Controller", n.Name, n.Name)
	}
	c.enqueue(c.zones.seen(n))
	c.Enqueue(n.Name)
}

func (c *controller) enqueue(nodes []string) {
	for _, n := range nodes {
		c.Enqueue(n)
	}
}

func (c *controller) nodeGone(n *corev1.Node) {
	c.mu.Lock()
	delete(c.heard, n.Name)
	c.mu.Unlock()
	c.enqueue(c.zones.gone(n.Name))
	c.event(n, "RemovingNode", "Node %s event: Removing Node %s from Controller", n.Name, n.Name)
}

// leaseSeen notes a sign of life, and reports whether it is one. There are many, so the node is not
// looked at each time.
func (c *controller) leaseSeen(l *coordinationv1.Lease) bool {
	if l.Namespace != corev1.NamespaceNodeLease || l.Spec.RenewTime == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known := c.heard[l.Name]
	if !known || s.renewed.Equal(l.Spec.RenewTime.Time) {
		return false
	}
	s.renew(l)
	s.at = time.Now()
	c.heard[l.Name] = s
	return true
}

// alive asks the server whether a node has renewed its lease, because the informer of leases may be
// behind. Then all nodes would seem to be silent.
func (c *controller) alive(ctx context.Context, n *corev1.Node) (bool, error) {
	if !features.Enabled(features.NodeControllerLeaseCircuitBreaker) {
		return false, nil
	}
	if r := condition(n, corev1.NodeReady); r != nil && r.Status == corev1.ConditionUnknown {
		return false, nil // it has been asked
	}
	l, err := c.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, n.Name,
		metav1.GetOptions{})
	if err != nil {
		return false, loop.IgnoreNotFound(err)
	}
	return c.leaseSeen(l), nil
}

// podSeen looks at the node of a pod that says that it is ready, in case the node is not.
func (c *controller) podSeen(p *corev1.Pod) {
	if p.Spec.NodeName == "" || !pods.Ready(p) {
		return
	}
	n, err := c.nodes.Get(p.Spec.NodeName)
	if err != nil {
		return
	}
	if r := condition(n, corev1.NodeReady); r != nil && r.Status != corev1.ConditionTrue {
		c.Enqueue(n.Name)
	}
}

func (c *controller) sync(ctx context.Context, name string) (time.Duration, error) {
	n, err := c.nodes.Get(name)
	if err != nil {
		return 0, loop.IgnoreNotFound(err)
	}
	wait := c.patience(n)
	if wait <= 0 {
		alive, err := c.alive(ctx, n)
		if err != nil {
			return 0, err
		}
		if alive {
			wait = c.patience(n)
		}
	}
	if wait > 0 {
		wait += time.Millisecond
	} else if n, err = c.markUnknown(ctx, n); err != nil {
		return 0, loop.IgnoreChanged(err)
	}
	n, turn, err := c.taint(ctx, n)
	if err != nil {
		return wait, loop.IgnoreChanged(err)
	}
	if turn > 0 && (wait <= 0 || turn < wait) {
		wait = turn
	}
	if r := condition(n, corev1.NodeReady); r != nil && r.Status != corev1.ConditionTrue {
		return wait, c.markPods(ctx, n)
	}
	return wait, nil
}

// patience returns how long a node need not be heard of yet.
func (c *controller) patience(n *corev1.Node) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := c.Grace
	if condition(n, corev1.NodeReady) == nil {
		limit = c.StartupGrace
	}
	heard, known := c.heard[n.Name]
	if !known {
		return limit // nodeSeen is about to see the node
	}
	return max(limit, heard.leased) - time.Since(heard.at)
}

// markUnknown says that a node is not heard of any more.
func (c *controller) markUnknown(ctx context.Context, found *corev1.Node) (*corev1.Node, error) {
	n, now, different := found.DeepCopy(), metav1.Now(), false
	for _, t := range []corev1.NodeConditionType{
		corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
	} {
		old := condition(n, t)
		switch {
		case old == nil:
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: t, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated",
				Message:           "Kubelet never posted node status.",
				LastHeartbeatTime: n.CreationTimestamp, LastTransitionTime: now,
			})
		case old.Status != corev1.ConditionUnknown:
			old.Status, old.Reason = corev1.ConditionUnknown, "NodeStatusUnknown"
			old.Message, old.LastTransitionTime = "Kubelet stopped posting node status.", now
		default:
			continue
		}
		different = true
	}
	if !different {
		return found, nil
	}
	updated, err := c.Client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
	if r := condition(found, corev1.NodeReady); err == nil && r != nil &&
		r.Status == corev1.ConditionTrue {
		c.event(n, "NodeNotReady", "Node %s status is now: NodeNotReady", n.Name)
	}
	return updated, err
}

func (c *controller) event(n *corev1.Node, reason, format string, args ...any) {
	c.Recorder.Eventf(&corev1.ObjectReference{
		Kind: "Node", APIVersion: "v1", Name: n.Name, UID: n.UID,
	}, corev1.EventTypeNormal, reason, format, args...)
}

func condition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	return loop.FindCondition(n.Status.Conditions, t, loop.NodeConditions)
}
