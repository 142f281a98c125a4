// Package statefulsets keeps the pods of StatefulSets: each has a number, a name and claims of its
// own, and they come and go in order.
package statefulsets

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/apps/podtemplates"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "statefulset-controller"

// burst is how many pods are deleted before the status is written again.
const burst = 500

var kind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

// Loop is the loop of StatefulSets.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "statefulset",
		Purpose:  "creates and deletes the pods and claims of StatefulSets",
		Workload: true, Workers: 2, Begin: begin,
		After: []schema.GroupResource{appsv1.Resource("statefulsets")},
	}
}

type controller struct {
	*loop.Controller
	sets, claims cache.SharedIndexInformer
	pods         *pods.Control
	history      *podtemplates.Control
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{
		Controller: l, pods: pods.NewControl(l), history: podtemplates.New(l),
		sets:   l.Informer(&appsv1.StatefulSet{}),
		claims: l.Informer(&corev1.PersistentVolumeClaim{}),
	}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		ownerrefs.OfOwners(c.sets, c.Enqueue, func(set metav1.Object) { c.pods.Forget(set.GetUID()) }),
		c.pods.Watch(ownerrefs.Handler[*corev1.Pod]{
			Kind:    kind.GroupKind(),
			Changed: func(key string, _, _ *corev1.Pod) { c.Enqueue(key) },
			Orphan: func(pod *corev1.Pod) {
				ownerrefs.Matching(c.sets.GetIndexer(), pod, func(s *appsv1.StatefulSet) *metav1.LabelSelector {
					return s.Spec.Selector
				}, c.Enqueue)
			},
		}),
		{Informer: c.claims},
		c.history.Watch(),
	}}
}

func selector(s *appsv1.StatefulSet) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(s.Spec.Selector)
}

// sync looks at a StatefulSet.
func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	set := loop.Get[appsv1.StatefulSet](c.sets, key)
	if set == nil {
		return 0, nil
	}
	matching, err := selector(set)
	if err != nil {
		return 0, nil // cannot get better before it changes
	}
	if !c.pods.Satisfied(set.UID) {
		return pods.ExpectationTimeout, nil // an event comes before
	}
	owner := ownerrefs.Owner{
		Object: set, Kind: kind, Selector: matching,
		Read: func(ctx context.Context) (metav1.Object, error) {
			return c.Client.AppsV1().StatefulSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
		},
	}
	revisionOwner := owner
	owner.Accepts = func(pod metav1.Object) bool {
		_, ok := ordinal(set.Name, pod.GetName())
		return ok
	}
	claimed, err := c.pods.Claim(ctx, owner)
	if err != nil {
		return 0, err
	}
	if set.DeletionTimestamp != nil {
		return 0, c.writeStatus(ctx, set, ending(c, set, claimed).status(set.Status.CollisionCount))
	}
	revisions, err := c.history.Claim(ctx, revisionOwner)
	if err != nil {
		return 0, err
	}
	update, current, all, err := c.revisions(ctx, revisionOwner, set, revisions)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return podtemplates.Lag, nil
	}
	if err != nil {
		return 0, ownerrefs.IgnoreLag(err)
	}
	p, err := newPass(c, owner, set, current, update.Latest, claimed)
	if err != nil {
		return 0, err
	}
	failed := p.proceed(ctx)
	if err := c.writeStatus(ctx, set, p.status(update.Collisions)); err != nil {
		return 0, errors.Join(failed, err)
	}
	if failed != nil {
		return 0, ownerrefs.IgnoreLag(failed)
	}
	inUse := map[string]bool{current.Name: true, update.Latest.Name: true}
	for _, pod := range claimed {
		inUse[revisionOf(pod)] = true
	}
	return p.wait, c.history.Limit(ctx, all, set.Spec.RevisionHistoryLimit,
		func(r *appsv1.ControllerRevision) bool { return inUse[r.Name] })
}

// revisions returns the revision of the present template and the one that the pods had before.
func (c *controller) revisions(
	ctx context.Context, owner ownerrefs.Owner, set *appsv1.StatefulSet,
	list []*appsv1.ControllerRevision,
) (podtemplates.State, *appsv1.ControllerRevision, []*appsv1.ControllerRevision, error) {
	state, err := c.history.Latest(ctx, owner, list, &set.Spec.Template, podtemplates.ByData,
		new(ptr.Deref(set.Status.CollisionCount, 0)))
	if err != nil {
		return state, nil, nil, err
	}
	current := state.Latest
	for _, r := range state.All {
		if r.Name == set.Status.CurrentRevision {
			current = r
		}
	}
	return state, current, state.All, nil
}

func (c *controller) writeStatus(
	ctx context.Context, set *appsv1.StatefulSet, status appsv1.StatefulSetStatus,
) error {
	if equality.Semantic.DeepEqual(status, set.Status) {
		return nil
	}
	written := *set
	written.Status = status
	_, err := c.Client.AppsV1().StatefulSets(set.Namespace).UpdateStatus(ctx, &written,
		metav1.UpdateOptions{})
	return ownerrefs.IgnoreLag(err)
}

// ordinal returns the number of a pod if its name is that of a pod of the set.
func ordinal(set, pod string) (int, bool) {
	i := strings.LastIndexByte(pod, '-')
	if i < 0 || pod[:i] != set {
		return 0, false
	}
	n, err := strconv.ParseUint(pod[i+1:], 10, 32) // the first ordinal and the replicas have 31 each
	return int(n), err == nil
}

func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }
