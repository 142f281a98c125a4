// Package tainteviction deletes the pods that do not tolerate the NoExecute taints of their node,
// or not any longer.
package tainteviction

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "taint-eviction-controller"

// Loop is the loop that deletes pods that do not tolerate the taints of their nodes.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: Name, // it is younger than the other names
		Purpose:  "deletes pods that do not tolerate the taints of their node",
		Workload: true, Workers: 4, Begin: begin,
		After: []schema.GroupResource{corev1.Resource("nodes")},
	}
}

type controller struct {
	*loop.Controller
	pods  corelisters.PodLister
	nodes corelisters.NodeLister
	// tainted measures for how long pods have been on nodes that they tolerate for some time only.
	tainted pods.Stopwatches
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{
		Controller: l,
		pods:       corelisters.NewPodLister(l.Indexer(&corev1.Pod{})),
		nodes:      corelisters.NewNodeLister(l.Indexer(&corev1.Node{})),
	}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		pods.WithNodes(loop.On(l.Informer(&corev1.Pod{}), c.podChanged)),
		loop.On(l.Informer(&corev1.Node{}), c.nodeChanged),
	}}
}

// evicting returns the taints of a node that pods must tolerate to stay. A node that does not exist
// has none.
func evicting(n *corev1.Node) []corev1.Taint {
	if n == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectNoExecute
	})
}

func (c *controller) podChanged(old, p *corev1.Pod) {
	switch {
	case p == nil:
		c.Add(loop.Key(old)) // to forget it
	case p.Spec.NodeName == "":
	case old == nil, old.UID != p.UID, old.Spec.NodeName != p.Spec.NodeName,
		!equality.Semantic.DeepEqual(old.Spec.Tolerations, p.Spec.Tolerations):
		c.Enqueue(loop.Key(p))
	}
}

func (c *controller) nodeChanged(old, n *corev1.Node) {
	if equality.Semantic.DeepEqual(evicting(old), evicting(n)) {
		return
	}
	if n == nil {
		n = old
	}
	for _, p := range pods.OnNode(c.Indexer(&corev1.Pod{}), n.Name) {
		c.Enqueue(loop.Key(p))
	}
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return 0, err
	}
	p, err := c.pods.Pods(name.Namespace).Get(name.Name)
	if err != nil {
		c.tainted.Forget(key)
		return 0, loop.IgnoreNotFound(err)
	}
	node, err := c.nodes.Get(p.Spec.NodeName) // nil if there is none
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	if p.DeletionTimestamp != nil {
		c.tainted.Forget(key)
		return 0, nil
	}
	stays, forever := tolerance(ctx, p, evicting(node))
	if forever {
		if c.tainted.Forget(key) {
			c.Recorder.Eventf(p, corev1.EventTypeNormal, "TaintManagerEviction",
				"Cancelling deletion of Pod %s/%s", p.Namespace, p.Name)
		}
		return 0, nil
	}
	if wait := stays - c.tainted.Elapsed(p); wait > 0 {
		return wait, nil
	}
	return 0, c.evict(ctx, p)
}

// tolerance returns how long a pod stays on a node with some taints. The first toleration of a
// taint counts, as in kube-controller-manager.
func tolerance(
	ctx context.Context, p *corev1.Pod, taints []corev1.Taint,
) (stays time.Duration, forever bool) {
	forever = true
	for i := range taints {
		tolerated := false
		for j := range p.Spec.Tolerations {
			t := &p.Spec.Tolerations[j]
			if !t.ToleratesTaint(klog.FromContext(ctx), &taints[i], false) {
				continue
			}
			tolerated = true
			if t.TolerationSeconds != nil {
				limit := loop.Seconds(max(*t.TolerationSeconds, 0))
				if forever || limit < stays {
					stays, forever = limit, false
				}
			}
			break
		}
		if !tolerated {
			return 0, false
		}
	}
	return stays, forever
}

// evict says why a pod is deleted, and deletes it.
func (c *controller) evict(ctx context.Context, p *corev1.Pod) error {
	client := c.Client.CoreV1().Pods(p.Namespace)
	marked := p.DeepCopy()
	pods.SetCondition(&marked.Status, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager",
		Message:            "Taint manager: deleting due to NoExecute taint",
		ObservedGeneration: p.Generation, LastTransitionTime: metav1.Now(),
	})
	if _, err := client.UpdateStatus(ctx, marked, metav1.UpdateOptions{}); err != nil {
		return loop.IgnoreNotFound(err)
	}
	c.Recorder.Eventf(p, corev1.EventTypeNormal, "TaintManagerEviction",
		"Marking for deletion Pod %s/%s", p.Namespace, p.Name)
	err := client.Delete(ctx, p.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(p.UID)),
	})
	return loop.IgnoreChanged(err) // after a conflict, it is another pod
}
