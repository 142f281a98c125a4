package metricsapi

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kinproc/kinproc/server/internal/controllers/pods"
	"github.com/kinproc/kinproc/server/internal/simulated"
)

// loads finds out, during one request, what the owners of pods say of their load.
type loads struct {
	api *API
	// owners are the workloads by the UID of the pods' controller, which may be another one: the
	// Deployment of a ReplicaSet. Nil stands for an owner that says nothing.
	owners map[types.UID]metav1.Object
	// sharing is how many pods share the load of a workload.
	sharing map[types.UID]int
}

func (a *API) newLoads() *loads {
	return &loads{api: a, owners: map[types.UID]metav1.Object{}}
}

// of returns the load that the owner of a pod says. Only ready pods have a part of it.
func (l *loads) of(p *corev1.Pod) simulated.Load {
	owner := l.owner(p)
	if owner == nil || !isReady(p) {
		return simulated.Load{}
	}
	if l.sharing == nil {
		l.count()
	}
	return simulated.Load{Annotations: owner.GetAnnotations(), Pods: l.sharing[owner.GetUID()]}
}

// count counts the ready pods of workloads that have a load.
func (l *loads) count() {
	l.sharing = map[types.UID]int{}
	all, err := l.api.pods.List(labels.Everything())
	if err != nil {
		return // cannot happen: the lister reads from memory
	}
	for _, p := range all {
		if owner := l.owner(p); owner != nil && isReady(p) {
			l.sharing[owner.GetUID()]++
		}
	}
}

func isReady(p *corev1.Pod) bool { return pods.Ready(p) && p.DeletionTimestamp == nil }

// owner returns the workload of a pod if it says something of its load, or nil.
func (l *loads) owner(p *corev1.Pod) metav1.Object {
	r := metav1.GetControllerOf(p)
	if r == nil {
		return nil
	}
	owner, known := l.owners[r.UID]
	if !known {
		owner = l.find(p.Namespace, r)
		l.owners[r.UID] = owner
	}
	return owner
}

// maxOwners is how many owners above one another are looked at. Owners may own each other.
const maxOwners = 3

func (l *loads) find(namespace string, r *metav1.OwnerReference) metav1.Object {
	for range maxOwners {
		if r == nil {
			return nil
		}
		object := l.get(namespace, r)
		if object == nil || object.GetUID() != r.UID {
			return nil
		}
		if simulated.Loaded(object.GetAnnotations()) {
			return object
		}
		r = metav1.GetControllerOf(object)
	}
	return nil
}

// get returns an object of a kind that owns pods, or nil.
func (l *loads) get(namespace string, r *metav1.OwnerReference) metav1.Object {
	var object metav1.Object
	var err error
	switch r.Kind {
	case "ReplicaSet":
		object, err = l.api.replicas.ReplicaSets(namespace).Get(r.Name)
	case "Deployment":
		object, err = l.api.rollouts.Deployments(namespace).Get(r.Name)
	case "StatefulSet":
		object, err = l.api.stateful.StatefulSets(namespace).Get(r.Name)
	case "DaemonSet":
		object, err = l.api.daemons.DaemonSets(namespace).Get(r.Name)
	case "Job":
		object, err = l.api.jobs.Jobs(namespace).Get(r.Name)
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	return object
}
