package scheduler

import (
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// notify returns a watch that tells the waiting pods of an event.
func (r *run) notify(informer cache.SharedIndexInformer, e event) loop.Watch {
	tell := func(any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queue.happenedToAll(e, nil)
	}
	return loop.Watch{Informer: informer, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(_, obj any) { tell(obj) }, DeleteFunc: tell,
	}}
}

func (r *run) nodeChanged(old, obj *corev1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if obj == nil {
		r.cluster.removeNode(old.Name)
		r.queue.happenedToAll(podPlaced, nil)
		return
	}
	r.cluster.setNode(obj)
	if old != nil && old.Spec.Unschedulable == obj.Spec.Unschedulable &&
		maps.Equal(old.Labels, obj.Labels) &&
		equality.Semantic.DeepEqual(old.Spec.Taints, obj.Spec.Taints) &&
		slices.Equal(old.Status.DeclaredFeatures, obj.Status.DeclaredFeatures) &&
		equality.Semantic.DeepEqual(old.Status.Allocatable, obj.Status.Allocatable) {
		return // a heartbeat
	}
	n := r.cluster.nodes[obj.Name]
	r.queue.happenedToAll(nodeChanged, func(p *queued) bool {
		// Pods that look at other pods may fit elsewhere now.
		return p.helps&(podPlaced|volumesChanged|devicesChanged) == 0 &&
			!r.attempt(p.pod, &p.wishes).suits(n)
	})
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func (r *run) podChanged(old, obj *corev1.Pod) {
	if obj == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.gone(old)
		return
	}
	info := newPod(obj)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case finished(obj):
		r.gone(obj)
	case obj.Spec.NodeName != "":
		r.placed(info)
	case obj.Spec.SchedulerName != profile:
	case obj.DeletionTimestamp != nil:
		r.queue.remove(obj.UID)
		r.cluster.unnominate(obj)
	case len(obj.Spec.SchedulingGates) > 0: // the API server sets the condition
		r.queue.remove(obj.UID)
	case awaitsClaims(obj): // resourceclaim-controller will change the status
		r.queue.remove(obj.UID)
	default:
		if obj.Status.NominatedNodeName != "" && r.queue.pods[obj.UID] == nil {
			r.cluster.nominate(info, obj.Status.NominatedNodeName)
		}
		r.queue.put(info, func(old *pod) bool {
			return !maps.Equal(old.Labels, info.Labels) ||
				!equality.Semantic.DeepEqual(old.Spec, info.Spec)
		})
	}
}

// awaitsClaims reports whether claims of the pod have not been made from their templates.
func awaitsClaims(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool {
		_, _, err := resourceclaim.Name(p, &c)
		return errors.Is(err, resourceclaim.ErrClaimNotFound)
	})
}

// placed takes note of a pod on a node.
func (r *run) placed(p *pod) {
	r.queue.remove(p.UID)
	old := r.cluster.pods[p.UID]
	r.cluster.put(p, p.Spec.NodeName, false)
	var e event
	switch {
	case old == nil || old.assumed:
		e = podPlaced
	case !maps.Equal(old.Labels, p.Labels):
		e = podPlaced | podGone
	case old.DeletionTimestamp == nil && p.DeletionTimestamp != nil:
		e = podPlaced // it does not count for the spread any more
	}
	if old != nil && (p.requests.milliCPU < old.requests.milliCPU ||
		p.requests.memory < old.requests.memory) {
		e |= podGone
	}
	if e != 0 {
		r.queue.happenedToAll(e, nil)
	}
}

func (r *run) gone(obj *corev1.Pod) {
	_, nominated := r.cluster.nominated[obj.Status.NominatedNodeName][obj.UID]
	r.queue.remove(obj.UID)
	r.cluster.unnominate(obj)
	if r.cluster.remove(obj.UID) != nil || nominated {
		r.queue.happenedToAll(podGone|podPlaced, nil)
	}
}
