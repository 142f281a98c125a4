// Package replicaset keeps the number of pods that ReplicaSets and ReplicationControllers ask for.
// Both are the same to it.
package replicaset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Names of the controllers in kube-controller-manager.
const (
	Name                      = "replicaset-controller"
	ReplicationControllerName = "replicationcontroller-controller"
	// ReplicationControllerComponent is the source of the events of ReplicationControllers.
	ReplicationControllerComponent = "replication-controller"
)

const (
	workers = 4
	// burst is how many pods are deleted before the status is written again.
	burst = 500
)

// Controller is the controller of one of the kinds.
type Controller struct {
	loop.Dependencies
	kind
	pods *pods.Control
	pace pods.Pace
}

// New returns the controller of ReplicaSets.
func New(d loop.Dependencies) (*Controller, error) { return newController(d, replicaSets(d)) }

// NewReplicationController returns the controller of ReplicationControllers.
func NewReplicationController(d loop.Dependencies) (*Controller, error) {
	return newController(d, replicationControllers(d))
}

func newController(d loop.Dependencies, k kind) (*Controller, error) {
	control, err := pods.NewControl(d)
	if err != nil {
		return nil, err
	}
	if err := ownerrefs.AddIndex(k.informer); err != nil {
		return nil, err
	}
	return &Controller{Dependencies: d, kind: k, pods: control}, nil
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	r := run{c, loop.New(c.name)}
	var handlers loop.Handlers
	defer handlers.Remove()
	if err := errors.Join(
		handlers.Add(c.informer, ownerrefs.OfOwners(r.queue.Soon, r.gone)),
		c.pods.Handle(&handlers, ownerrefs.Handler[*corev1.Pod]{
			Kind: c.gvk.GroupKind(),
			Changed: func(key string, old, pod *corev1.Pod) {
				if old == nil || pod == nil || matters(old, pod) {
					r.queue.Add(key)
				}
			},
			Orphan: func(pod *corev1.Pod) {
				ownerrefs.Matching(c.informer.GetIndexer(), pod, c.selector, r.queue.Add)
			},
		}),
	); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	c.Informers.StartWithContext(ctx)
	return r.queue.Run(ctx, workers, r.sync, handlers.Synced()...)
}

// matters reports whether a change of a pod may change the status of its set.
func matters(old, pod *corev1.Pod) bool {
	return pod.Status.Phase != old.Status.Phase ||
		(pod.DeletionTimestamp == nil) != (old.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(pods.Condition(old, corev1.PodReady),
			pods.Condition(pod, corev1.PodReady)) ||
		!equality.Semantic.DeepEqual(old.Labels, pod.Labels) ||
		!equality.Semantic.DeepEqual(old.OwnerReferences, pod.OwnerReferences)
}

func (c *Controller) selector(obj ownerrefs.Object) *metav1.LabelSelector {
	return c.view(obj).Spec.Selector
}

// run is one call of Run.
type run struct {
	*Controller
	queue *loop.Queue
}

func (r run) gone(set metav1.Object) {
	r.pods.Forget(set.GetUID())
	r.pace.Forget(ownerrefs.Key(set))
}

func (r run) sync(ctx context.Context, key string) (time.Duration, error) {
	obj, ok, err := r.informer.GetIndexer().GetByKey(key)
	if err != nil || !ok {
		return 0, err
	}
	seen := obj.(ownerrefs.Object)
	rs := r.view(seen)
	if rs.Generation == rs.Status.ObservedGeneration {
		if pause := r.pace.Pause(key, rs.Status.Replicas); pause > 0 {
			r.queue.AddAfter(key, pause)
			return 0, nil
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return 0, nil // cannot get better before it changes
	}
	owner := ownerrefs.Owner{
		Object: seen, Kind: r.gvk, Selector: selector,
		Read: func(ctx context.Context) (metav1.Object, error) {
			return r.read(ctx, rs.Namespace, rs.Name)
		},
	}
	settled := r.pods.Settled(rs.UID)
	claimed, err := r.pods.Claim(ctx, owner)
	if err != nil {
		return 0, err
	}
	var failed error
	var failure *appsv1.ReplicaSetCondition
	var room time.Duration
	if settled && rs.DeletionTimestamp == nil {
		room, failure, failed = r.manage(ctx, owner, rs, claimed)
	}
	status, wait := statusFrom(rs, claimed, time.Now())
	if settled && rs.DeletionTimestamp == nil {
		setFailure(&status, failure)
	}
	if !settled && (wait == 0 || wait > pods.Patience) {
		wait = pods.Patience
	}
	if room > 0 && (wait == 0 || wait > room) {
		wait = room
	}
	if wait > 0 {
		r.queue.AddAfter(key, wait)
	}
	if r.gvk.Group == "" {
		status.TerminatingReplicas = nil // ReplicationControllers have no such field
	}
	if equality.Semantic.DeepEqual(status, rs.Status) {
		return 0, failed
	}
	err = r.updateStatus(ctx, seen, status)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return 0, failed // the change that caused this causes an event
	case err != nil:
		return 0, fmt.Errorf("update the status: %w", err)
	}
	r.pace.Wrote(key)
	return 0, failed
}

// manage creates or deletes pods. Wait is the time after which there is room for more of them.
func (r run) manage(
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
		n, wait = r.pods.Room(rs.UID, len(claimed), missing)
		_, err = r.pods.Create(ctx, owner, n, func(int) *corev1.Pod {
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
			if related, err = r.related(rs, active); err != nil {
				return 0, nil, err
			}
			surplus = pods.ForDeletion(active, related, time.Now())
		}
		err = r.pods.Delete(ctx, owner, surplus[:min(-missing, burst)])
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
func (r run) related(rs *appsv1.ReplicaSet, own []*corev1.Pod) ([]*corev1.Pod, error) {
	controller := metav1.GetControllerOfNoCopy(rs)
	if controller == nil {
		return own, nil
	}
	siblings, err := ownerrefs.Owned[ownerrefs.Object](r.informer.GetIndexer(), controller.UID)
	if err != nil {
		return nil, err
	}
	var related []*corev1.Pod
	for _, sibling := range siblings {
		theirs, err := r.pods.Owned(sibling)
		if err != nil {
			return nil, err
		}
		related = append(related, theirs...)
	}
	return related, nil
}
