// Package replicasets keeps the number of pods that ReplicaSets and ReplicationControllers ask for.
// Both are the same to it.
package replicasets

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Names of the loops in kube-controller-manager.
const (
	Name                      = "replicaset-controller"
	ReplicationControllerName = "replicationcontroller-controller"
)

// burst is how many pods are deleted before the status is written again.
const burst = 500

// Loop is the loop of ReplicaSets.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "replicaset", Purpose: "creates and deletes the pods of ReplicaSets",
		Workload: true, Workers: 4, Begin: begin(replicaSets),
		After: []schema.GroupResource{appsv1.Resource("replicasets")},
	}
}

// ReplicationControllers is the loop of ReplicationControllers.
func ReplicationControllers() loop.Loop {
	return loop.Loop{
		Name: ReplicationControllerName, Alias: "replicationcontroller",
		Purpose:   "creates and deletes the pods of ReplicationControllers",
		Component: "replication-controller",
		Workload:  true, Workers: 4, Begin: begin(replicationControllers),
		After: []schema.GroupResource{corev1.Resource("replicationcontrollers")},
	}
}

// controller is the controller of one of the kinds.
type controller struct {
	*loop.Controller
	kind
	pods *pods.Control
	pace pods.Pace
}

func begin(of func(*loop.Controller) kind) func(*loop.Controller) loop.Work {
	return func(l *loop.Controller) loop.Work {
		c := &controller{Controller: l, kind: of(l), pods: pods.NewControl(l)}
		sets := ownerrefs.OfOwners(c.informer, c.Enqueue, c.gone)
		sets.Indexers = ownerrefs.Indexers()
		return loop.Work{Sync: c.sync, Watches: []loop.Watch{
			sets,
			c.pods.Watch(ownerrefs.Handler[*corev1.Pod]{
				Kind: c.gvk.GroupKind(),
				Changed: func(key string, old, pod *corev1.Pod) {
					if old == nil || pod == nil || matters(old, pod) {
						c.Add(key)
					}
				},
				Orphan: func(pod *corev1.Pod) {
					ownerrefs.Matching(c.informer.GetIndexer(), pod, c.selector, c.Add)
				},
			}),
		}}
	}
}

// matters reports whether a change of a pod may change the status of its set.
func matters(old, pod *corev1.Pod) bool {
	return pod.Status.Phase != old.Status.Phase ||
		(pod.DeletionTimestamp == nil) != (old.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(pods.Condition(&old.Status, corev1.PodReady),
			pods.Condition(&pod.Status, corev1.PodReady)) ||
		!equality.Semantic.DeepEqual(old.Labels, pod.Labels) ||
		!equality.Semantic.DeepEqual(old.OwnerReferences, pod.OwnerReferences)
}

func (c *controller) selector(obj ownerrefs.Object) *metav1.LabelSelector {
	return c.view(obj).Spec.Selector
}

func (c *controller) gone(set metav1.Object) {
	c.pods.Forget(set.GetUID())
	c.pace.Forget(loop.Key(set))
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	obj, ok, err := c.informer.GetIndexer().GetByKey(key)
	if err != nil || !ok {
		return 0, err
	}
	seen := obj.(ownerrefs.Object)
	rs := c.view(seen)
	if rs.Generation == rs.Status.ObservedGeneration {
		if pause := c.pace.Pause(key, rs.Status.Replicas); pause > 0 {
			return pause, nil
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return 0, nil // cannot get better before it changes
	}
	owner := ownerrefs.Owner{
		Object: seen, Kind: c.gvk, Selector: selector,
		Read: func(ctx context.Context) (metav1.Object, error) {
			return c.read(ctx, rs.Namespace, rs.Name)
		},
	}
	satisfied := c.pods.Satisfied(rs.UID)
	claimed, err := c.pods.Claim(ctx, owner)
	if err != nil {
		return 0, err
	}
	var failed error
	var failure *appsv1.ReplicaSetCondition
	var room time.Duration
	if satisfied && rs.DeletionTimestamp == nil {
		room, failure, failed = c.manage(ctx, owner, rs, claimed)
	}
	status, wait := statusFrom(rs, claimed, time.Now())
	if satisfied && rs.DeletionTimestamp == nil {
		setFailure(&status, failure)
	}
	if !satisfied && (wait == 0 || wait > pods.ExpectationTimeout) {
		wait = pods.ExpectationTimeout
	}
	if room > 0 && (wait == 0 || wait > room) {
		wait = room
	}
	if c.gvk.Group == "" || // ReplicationControllers have no such field
		!features.Enabled(features.DeploymentReplicaSetTerminatingReplicas) {
		status.TerminatingReplicas = nil
	}
	if equality.Semantic.DeepEqual(status, rs.Status) {
		return wait, failed
	}
	err = c.updateStatus(ctx, seen, status)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return wait, failed // the change that caused this causes an event
	case err != nil:
		return 0, fmt.Errorf("update the status: %w", err)
	}
	c.pace.Wrote(key)
	return wait, failed
}

// manage creates or deletes pods. Wait is the time after which there is room for more of them.
func (c *controller) manage(
	ctx context.Context, owner ownerrefs.Owner, rs *appsv1.ReplicaSet, claimed []*corev1.Pod,
) (wait time.Duration, failure *appsv1.ReplicaSetCondition, err error) {
	active := slices.DeleteFunc(slices.Clone(claimed), func(p *corev1.Pod) bool {
		return !pods.Active(p)
	})
	missing := int(*rs.Spec.Replicas) - len(active)
	var reason string
	switch {
	case missing > 0:
		reason = pods.FailedCreate
		var n int
		n, wait = c.pods.Room(rs.UID, len(claimed), missing)
		_, err = c.pods.Create(ctx, owner, n, func(int) *corev1.Pod {
			return pods.FromTemplate(owner, &rs.Spec.Template)
		})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return 0, nil, nil // the set goes, too
		}
	case missing < 0:
		reason = pods.FailedDelete
		surplus := active
		if *rs.Spec.Replicas > 0 {
			var related []*corev1.Pod
			if related, err = c.related(rs, active); err != nil {
				return 0, nil, err
			}
			surplus = pods.ForDeletion(active, related, time.Now())
		}
		err = c.pods.Delete(ctx, owner, surplus[:min(-missing, burst)])
	}
	if err == nil {
		return wait, nil, nil
	}
	return wait, &appsv1.ReplicaSetCondition{
		Type:    appsv1.ReplicaSetReplicaFailure,
		Status:  corev1.ConditionTrue,
		Reason:  reason,
		Message: err.Error(),
	}, err
}

// related returns the pods of all sets that have the same controller.
func (c *controller) related(rs *appsv1.ReplicaSet, own []*corev1.Pod) ([]*corev1.Pod, error) {
	controller := metav1.GetControllerOfNoCopy(rs)
	if controller == nil {
		return own, nil
	}
	siblings, err := ownerrefs.Owned[ownerrefs.Object](c.informer.GetIndexer(), controller.UID)
	if err != nil {
		return nil, err
	}
	var related []*corev1.Pod
	for _, sibling := range siblings {
		theirs, err := c.pods.Owned(sibling)
		if err != nil {
			return nil, err
		}
		related = append(related, theirs...)
	}
	return related, nil
}
