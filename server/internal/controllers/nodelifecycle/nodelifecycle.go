// Package nodelifecycle notices when nodes are no longer heard of, and says with taints what the
// conditions of nodes mean for pods.
//
//	err := nodelifecycle.New(client, recorder, factory).Run(ctx)
//
// Unlike in kube-controller-manager, the failure of many nodes does not slow the tainting down:
// that protects production clusters whose network is partitioned.
package nodelifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the controller in kube-controller-manager.
const Name = "node-lifecycle-controller"

// Controller keeps the conditions and taints of nodes.
type Controller struct {
	loop.Dependencies
	nodes corelisters.NodeLister
	pods  corelisters.PodLister
	queue *loop.Queue
	// Grace is how long a node may not be heard of before it counts as unreachable. StartupGrace is
	// the same for a node that has never said whether it is ready. Both may be changed before Run.
	Grace, StartupGrace time.Duration

	mu sync.Mutex
	// heard is when each node was last heard of.
	heard map[string]sign
}

// sign is a sign of life of a node.
type sign struct {
	at time.Time
	// renewed and heartbeat are the times that the node wrote, by its own clock.
	renewed, heartbeat time.Time
}

// New returns the controller. It asks for its informers.
func New(d loop.Dependencies) *Controller {
	d.Informers.Coordination().V1().Leases().Informer()
	return &Controller{
		Dependencies: d,
		nodes:        d.Informers.Core().V1().Nodes().Lister(),
		pods:         d.Informers.Core().V1().Pods().Lister(),
		queue:        loop.New(Name), heard: map[string]sign{},
		Grace: 50 * time.Second, StartupGrace: 60 * time.Second, // as in kube-controller-manager
	}
}

// Run runs the controller until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	var handlers loop.Handlers
	defer handlers.Remove()
	core := c.Informers.Core().V1()
	if err := errors.Join(
		handlers.Add(core.Nodes().Informer(), loop.OnChange(func(old, n *corev1.Node) {
			if n == nil {
				c.nodeGone(old)
			} else {
				c.nodeSeen(n)
			}
		})),
		handlers.Add(core.Pods().Informer(), loop.OnChange(func(_, p *corev1.Pod) {
			if p != nil {
				c.podSeen(p)
			}
		})),
		handlers.Add(c.Informers.Coordination().V1().Leases().Informer(), loop.OnChange(
			func(_, l *coordinationv1.Lease) {
				if l != nil {
					c.leaseSeen(l)
				}
			})),
	); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return c.queue.Run(ctx, 4, c.sync, handlers.Synced()...)
}

func (c *Controller) nodeSeen(n *corev1.Node) {
	var heartbeat time.Time
	if ready := condition(n, corev1.NodeReady); ready != nil {
		heartbeat = ready.LastHeartbeatTime.Time
	}
	c.mu.Lock()
	s, known := c.heard[n.Name]
	if !known || !s.heartbeat.Equal(heartbeat) {
		s.heartbeat, s.at = heartbeat, time.Now()
		c.heard[n.Name] = s
	}
	c.mu.Unlock()
	if !known {
		c.event(n, "RegisteredNode", "Node %s event: Registered Node %s in Controller", n.Name, n.Name)
	}
	c.queue.Soon(n.Name)
}

func (c *Controller) nodeGone(n *corev1.Node) {
	c.mu.Lock()
	delete(c.heard, n.Name)
	c.mu.Unlock()
	c.event(n, "RemovingNode", "Node %s event: Removing Node %s from Controller", n.Name, n.Name)
}

// leaseSeen notes a sign of life. There are many, so the node is not looked at each time.
func (c *Controller) leaseSeen(l *coordinationv1.Lease) {
	if l.Namespace != corev1.NamespaceNodeLease || l.Spec.RenewTime == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known := c.heard[l.Name]
	if known && !s.renewed.Equal(l.Spec.RenewTime.Time) {
		s.renewed, s.at = l.Spec.RenewTime.Time, time.Now()
		c.heard[l.Name] = s
	}
}

// podSeen looks at the node of a pod that says that it is ready, in case the node is not.
func (c *Controller) podSeen(p *corev1.Pod) {
	if p.Spec.NodeName == "" || !pods.Ready(p) {
		return
	}
	n, err := c.nodes.Get(p.Spec.NodeName)
	if err != nil {
		return
	}
	if r := condition(n, corev1.NodeReady); r != nil && r.Status != corev1.ConditionTrue {
		c.queue.Soon(n.Name)
	}
}

func (c *Controller) sync(ctx context.Context, name string) (time.Duration, error) {
	found, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n := found
	if wait := c.patience(n); wait > 0 {
		c.queue.AddAfter(name, wait+time.Millisecond)
	} else if n, err = c.markUnknown(ctx, n); err != nil {
		return 0, loop.IgnoreChanged(err)
	}
	if n, err = c.taint(ctx, n); err != nil {
		return 0, loop.IgnoreChanged(err)
	}
	if r := condition(n, corev1.NodeReady); r != nil && r.Status != corev1.ConditionTrue {
		return 0, c.markPods(ctx, n)
	}
	return 0, nil
}

// patience returns how long a node need not be heard of yet.
func (c *Controller) patience(n *corev1.Node) time.Duration {
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
	return limit - time.Since(heard.at)
}

// markUnknown says that a node is not heard of any more.
func (c *Controller) markUnknown(ctx context.Context, found *corev1.Node) (*corev1.Node, error) {
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

func (c *Controller) event(n *corev1.Node, reason, format string, args ...any) {
	c.Recorder.Eventf(&corev1.ObjectReference{
		Kind: "Node", APIVersion: "v1", Name: n.Name, UID: n.UID,
	}, corev1.EventTypeNormal, reason, format, args...)
}

func condition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}
