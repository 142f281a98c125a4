// Package podgc deletes pods that no kubelet will ever delete: those whose node is gone, those that
// were to end before they had a node, and those that are ending on a node that is out of service.
// Of the pods that have ended, it deletes the oldest if there are too many.
//
//	err := podgc.New(client, factory.Core().V1().Pods(), factory.Core().V1().Nodes()).Run(ctx)
package podgc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the controller in kube-controller-manager.
const Name = "pod-garbage-collector-controller"

// countPeriod is the time between two counts of the pods that have ended.
const countPeriod = 20 * time.Second

// count is the key in the queue for a count. No pod has it.
const count = ""

// Controller deletes pods that no kubelet deletes.
type Controller struct {
	client kubernetes.Interface
	pods   coreinformers.PodInformer
	nodes  coreinformers.NodeInformer
	queue  *loop.Queue
	// without measures for how long pods have been without their nodes.
	without pods.Stopwatches
	// Quarantine is how long a node must be gone before its pods are deleted, because it may come
	// back under the same name. Ended is how many pods that have ended are kept. Both may be changed
	// before Run.
	Quarantine time.Duration
	Ended      int
}

// New returns the controller. It asks for its informers.
func New(
	client kubernetes.Interface, pods coreinformers.PodInformer, nodes coreinformers.NodeInformer,
) *Controller {
	pods.Informer()
	nodes.Informer()
	return &Controller{
		client: client, pods: pods, nodes: nodes, queue: loop.New(Name),
		Quarantine: 5 * time.Second, // kube-controller-manager waits 40 s and looks every 20 s
		Ended:      12500,           // as in kube-controller-manager
	}
}

// Run runs the controller until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	var handlers loop.Handlers
	defer handlers.Remove()
	if err := errors.Join(
		handlers.Add(c.pods.Informer(), loop.OnChange(c.podChanged)),
		handlers.Add(c.nodes.Informer(), loop.OnChange(c.nodeChanged)),
	); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	c.queue.Add(count)
	return c.queue.Run(ctx, 4, c.sync, handlers.Synced()...)
}

// podChanged adds a pod to the queue if there may be something to do.
func (c *Controller) podChanged(old, p *corev1.Pod) {
	if p == nil {
		c.queue.Add(cache.MetaObjectToName(old).String()) // to forget it
		return
	}
	if p.DeletionTimestamp == nil && p.Spec.NodeName == "" {
		return
	}
	node, err := c.nodes.Lister().Get(p.Spec.NodeName)
	if err != nil || p.DeletionTimestamp != nil && outOfService(node) {
		c.queue.Soon(cache.MetaObjectToName(p).String())
	}
}

// nodeChanged adds the pods of a node that is gone or out of service.
func (c *Controller) nodeChanged(old, n *corev1.Node) {
	switch {
	case n == nil:
		n = old
	case old == nil || !outOfService(n):
		return
	}
	for _, p := range pods.OnNode(c.pods.Lister(), n.Name) {
		c.queue.Soon(cache.MetaObjectToName(p).String())
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

func (c *Controller) sync(ctx context.Context, key string) (time.Duration, error) {
	if key == count {
		c.queue.AddAfter(count, countPeriod)
		return 0, c.limit(ctx)
	}
	err := c.look(ctx, key)
	if apierrors.IsConflict(err) {
		return time.Second, nil // the status of the pod has just changed
	}
	return 0, err
}

// limit deletes the oldest of the pods that have ended, if there are too many.
func (c *Controller) limit(ctx context.Context) error {
	all, err := c.pods.Lister().List(labels.Everything())
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
func (c *Controller) look(ctx context.Context, key string) error {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return err
	}
	p, err := c.pods.Lister().Pods(name.Namespace).Get(name.Name)
	if err != nil {
		c.without.Forget(key)
		return loop.IgnoreNotFound(err)
	}
	if p.Spec.NodeName == "" {
		if p.DeletionTimestamp == nil {
			return nil
		}
		return c.end(ctx, p, nil)
	}
	node, err := c.nodes.Lister().Get(p.Spec.NodeName)
	if err == nil {
		c.without.Forget(key)
		if p.DeletionTimestamp != nil && outOfService(node) {
			return c.end(ctx, p, nil)
		}
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	if wait := c.Quarantine - c.without.Elapsed(p); wait > 0 {
		c.queue.AddAfter(key, wait)
		return nil
	}
	// The informer may not have a node yet that has just registered.
	_, err = c.client.CoreV1().Nodes().Get(ctx, p.Spec.NodeName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	return c.end(ctx, p, &corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC",
		Message: "PodGC: node no longer exists", ObservedGeneration: p.Generation,
		LastTransitionTime: metav1.Now(),
	})
}

// end says that a pod has failed, so that its controller replaces it, and deletes it.
func (c *Controller) end(ctx context.Context, p *corev1.Pod, because *corev1.PodCondition) error {
	if !pods.Finished(p) {
		failed := p.DeepCopy()
		failed.Status.Phase = corev1.PodFailed
		if because != nil {
			if c := pods.Condition(failed, because.Type); c != nil {
				*c = *because
			} else {
				failed.Status.Conditions = append(failed.Status.Conditions, *because)
			}
		}
		_, err := c.client.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, failed, metav1.UpdateOptions{})
		if err != nil {
			return loop.IgnoreNotFound(err)
		}
	}
	err := c.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(p.UID)),
	})
	return loop.IgnoreChanged(err) // after a conflict, it is another pod
}
