// Package podgc deletes pods that no kubelet will ever delete: those whose node is gone, those that
// were to end before they had a node, and those that are ending on a node that is out of service.
// Of the pods that have ended, it deletes the oldest if there are too many.
package podgc

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "pod-garbage-collector-controller"

// countPeriod is the time between two counts of the pods that have ended.
const countPeriod = 20 * time.Second

// count is the key in the queue for a count. No pod has it.
const count = ""

// Limits are what is tolerated.
type Limits struct {
	// Quarantine is how long a node must be gone before its pods are deleted, because it may come
	// back under the same name. kube-controller-manager waits 40 s and looks every 20 s.
	Quarantine time.Duration
	// Ended is how many pods that have ended are kept.
	Ended int
}

// Loop is the loop that deletes pods that no kubelet deletes.
func Loop() loop.Loop { return Within(Limits{5 * time.Second, 12500}) }

// Within returns the loop with other limits.
func Within(limits Limits) loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "podgc",
		Purpose:  "deletes pods whose node is gone, and the oldest of many terminated pods",
		Workload: true, Workers: 4,
		After: []schema.GroupResource{corev1.Resource("pods")},
		Begin: func(l *loop.Controller) loop.Work {
			c := &controller{
				Controller: l, Limits: limits,
				pods:  corelisters.NewPodLister(l.Indexer(&corev1.Pod{})),
				nodes: corelisters.NewNodeLister(l.Indexer(&corev1.Node{})),
			}
			c.Add(count)
			return loop.Work{Sync: c.sync, Watches: []loop.Watch{
				pods.WithNodes(loop.On(l.Informer(&corev1.Pod{}), c.podChanged)),
				loop.On(l.Informer(&corev1.Node{}), c.nodeChanged),
			}}
		},
	}
}

type controller struct {
	*loop.Controller
	Limits
	pods  corelisters.PodLister
	nodes corelisters.NodeLister
	// without measures for how long pods have been without their nodes.
	without pods.Stopwatches
}

// podChanged adds a pod to the queue if there may be something to do.
func (c *controller) podChanged(old, p *corev1.Pod) {
	if p == nil {
		c.Add(loop.Key(old)) // to forget it
		return
	}
	if p.DeletionTimestamp == nil && p.Spec.NodeName == "" {
		return
	}
	node, err := c.nodes.Get(p.Spec.NodeName)
	if err != nil || p.DeletionTimestamp != nil && outOfService(node) {
		c.Enqueue(loop.Key(p))
	}
}

// nodeChanged adds the pods of a node that is gone or out of service.
func (c *controller) nodeChanged(old, n *corev1.Node) {
	switch {
	case n == nil:
		n = old
	case old == nil || !outOfService(n):
		return
	}
	for _, p := range pods.OnNode(c.Indexer(&corev1.Pod{}), n.Name) {
		c.Enqueue(loop.Key(p))
	}
}

// outOfService reports whether an administrator has said that a node that is not ready is shut
// down.
func outOfService(n *corev1.Node) bool {
	tainted := false
	for _, t := range n.Spec.Taints {
		tainted = tainted || t.Key == corev1.TaintNodeOutOfService
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return tainted && c.Status != corev1.ConditionTrue
		}
	}
	return false
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	if key == count {
		return countPeriod, c.limit(ctx)
	}
	return c.look(ctx, key)
}

// limit deletes the oldest of the pods that have ended, if there are too many.
func (c *controller) limit(ctx context.Context) error {
	all, err := c.pods.List(labels.Everything())
	if err != nil {
		return err
	}
	ended := slices.DeleteFunc(all, func(p *corev1.Pod) bool {
		switch p.Status.Phase {
		case corev1.PodPending, corev1.PodRunning, corev1.PodUnknown:
			return true
		}
		return false
	})
	excess := len(ended) - c.Ended
	if excess <= 0 {
		return nil
	}
	slices.SortFunc(ended, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var errs []error
	for _, p := range ended[:excess] {
		if ctx.Err() != nil {
			break // the next count goes on
		}
		errs = append(errs, c.end(ctx, p, nil))
	}
	return errors.Join(errs...)
}

// rank orders pods that have ended: those that a kubelet has evicted go first.
func rank(p *corev1.Pod) int {
	if p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted" {
		return 0
	}
	return 1
}

// look deletes a pod if no kubelet will.
func (c *controller) look(ctx context.Context, key string) (time.Duration, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return 0, err
	}
	p, err := c.pods.Pods(name.Namespace).Get(name.Name)
	if err != nil {
		c.without.Forget(key)
		return 0, loop.IgnoreNotFound(err)
	}
	if p.Spec.NodeName == "" {
		if p.DeletionTimestamp == nil {
			return 0, nil
		}
		return 0, c.end(ctx, p, nil)
	}
	node, err := c.nodes.Get(p.Spec.NodeName)
	if err == nil {
		c.without.Forget(key)
		if p.DeletionTimestamp != nil && outOfService(node) {
			return 0, c.end(ctx, p, nil)
		}
		return 0, nil
	}
	if !apierrors.IsNotFound(err) {
		return 0, err
	}
	if wait := c.Quarantine - c.without.Elapsed(p); wait > 0 {
		return wait, nil
	}
	// The informer may not have a node yet that has just registered.
	_, err = c.Client.CoreV1().Nodes().Get(ctx, p.Spec.NodeName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return 0, err
	}
	return 0, c.end(ctx, p, &corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC",
		Message: "PodGC: node no longer exists", ObservedGeneration: p.Generation,
		LastTransitionTime: metav1.Now(),
	})
}

// end says that a pod has failed, so that its controller replaces it, and deletes it.
func (c *controller) end(ctx context.Context, p *corev1.Pod, because *corev1.PodCondition) error {
	if !pods.Finished(p) {
		failed := p.DeepCopy()
		failed.Status.Phase = corev1.PodFailed
		if because != nil {
			pods.SetCondition(&failed.Status, *because)
		}
		_, err := c.Client.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, failed, metav1.UpdateOptions{})
		if err != nil {
			return loop.IgnoreNotFound(err)
		}
	}
	err := c.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(p.UID)),
	})
	return loop.IgnoreChanged(err) // after a conflict, it is another pod
}
