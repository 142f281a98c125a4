// Package daemonsets keeps one pod of each DaemonSet on each node that it is for.
package daemonsets

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kinproc/kinproc/server/internal/controllers/apps/podtemplates"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "daemonset-controller"

const (
	// burst is how many pods are created or deleted before the status is written again.
	burst = 250
	// firstBackoff and maxBackoff are the times between two pods that fail on the same node.
	firstBackoff = time.Second
	maxBackoff   = 15 * time.Minute
)

var kind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

// Loop is the loop of DaemonSets.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "daemonset", Purpose: "runs a pod of each DaemonSet on the nodes",
		Workload: true, Workers: 2, Begin: begin,
		After: []schema.GroupResource{appsv1.Resource("daemonsets")},
	}
}

type controller struct {
	*loop.Controller
	sets, nodes cache.SharedIndexInformer
	pods        *pods.Control
	history     *podtemplates.Control
	pace        pods.Pace
	failures    *flowcontrol.Backoff // by set and node
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{
		Controller: l, pods: pods.NewControl(l), history: podtemplates.New(l),
		sets:     l.Informer(&appsv1.DaemonSet{}),
		nodes:    l.Informer(&corev1.Node{}),
		failures: flowcontrol.NewBackOff(firstBackoff, maxBackoff),
	}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		ownerrefs.OfOwners(c.sets, c.Enqueue, c.gone),
		loop.On(c.nodes, func(old, node *corev1.Node) {
			if old != nil && node != nil && equality.Semantic.DeepEqual(old.Labels, node.Labels) &&
				equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) {
				return // fits the same sets as before
			}
			for _, key := range c.sets.GetStore().ListKeys() {
				c.Enqueue(key)
			}
		}),
		c.pods.Watch(ownerrefs.Handler[*corev1.Pod]{
			Kind:    kind.GroupKind(),
			Changed: func(key string, _, _ *corev1.Pod) { c.Enqueue(key) },
			Orphan: func(pod *corev1.Pod) {
				ownerrefs.Matching(c.sets.GetIndexer(), pod, func(s *appsv1.DaemonSet) *metav1.LabelSelector {
					return s.Spec.Selector
				}, c.Enqueue)
			},
		}),
		c.history.Watch(),
	}}
}

func selector(s *appsv1.DaemonSet) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(s.Spec.Selector)
}

func (c *controller) gone(set metav1.Object) {
	c.pods.Forget(set.GetUID())
	c.pace.Forget(loop.Key(set))
}

// sync looks at a DaemonSet.
func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	set := loop.Get[appsv1.DaemonSet](c.sets, key)
	if set == nil {
		return 0, nil
	}
	if set.Generation == set.Status.ObservedGeneration {
		if pause := c.pace.Pause(key, set.Status.CurrentNumberScheduled); pause > 0 {
			return pause, nil
		}
	}
	matching, err := selector(set)
	if err != nil {
		return 0, nil // cannot get better before it changes
	}
	if matching.Empty() {
		c.Recorder.Event(set, corev1.EventTypeWarning, "SelectingAll",
			"This daemon set is selecting all pods. A non-empty selector is required.")
		return 0, nil
	}
	satisfied := c.pods.Satisfied(set.UID)
	owner := ownerrefs.Owner{
		Object: set, Kind: kind, Selector: matching,
		Read: func(ctx context.Context) (metav1.Object, error) {
			return c.Client.AppsV1().DaemonSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
		},
	}
	if set.DeletionTimestamp != nil {
		return 0, nil
	}
	revisions, err := c.history.Claim(ctx, owner)
	if err != nil {
		return 0, err
	}
	state, err := c.history.Latest(ctx, owner, revisions, &set.Spec.Template,
		podtemplates.ByTemplate(&set.Spec.Template), set.Status.CollisionCount)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return podtemplates.Lag, nil
	}
	if err != nil {
		return 0, ownerrefs.IgnoreLag(err)
	}
	claimed, err := c.pods.Claim(ctx, owner)
	if err != nil {
		return 0, err
	}
	p, err := c.look(ctx, owner, set, state, claimed)
	if err != nil {
		return 0, err
	}
	var failed error
	if !satisfied {
		p.lookAgain(pods.ExpectationTimeout)
	} else {
		var changed bool
		if changed, failed = p.manage(ctx); failed == nil && !changed {
			failed = p.roll(ctx)
		}
	}
	if status := p.status(); !equality.Semantic.DeepEqual(status, set.Status) {
		written := *set
		written.Status = status
		_, err := c.Client.AppsV1().DaemonSets(set.Namespace).UpdateStatus(ctx, &written,
			metav1.UpdateOptions{})
		if err := ownerrefs.IgnoreLag(err); err != nil {
			return 0, errors.Join(failed, err)
		}
		c.pace.Wrote(key)
	}
	if failed != nil {
		return 0, ownerrefs.IgnoreLag(failed)
	}
	inUse := map[string]bool{p.hash: true}
	for _, pod := range claimed {
		inUse[hashOf(pod)] = true
	}
	return p.wait, c.history.Limit(ctx, state.All, set.Spec.RevisionHistoryLimit,
		func(r *appsv1.ControllerRevision) bool { return inUse[hashOf(r)] })
}

// hashOf returns the hash of the template of a pod or a revision.
func hashOf(obj metav1.Object) string {
	return obj.GetLabels()[appsv1.ControllerRevisionHashLabelKey]
}
