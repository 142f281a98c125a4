// Package servicequeue has the queue of the controllers of endpoints, whose keys are names of
// Services.
package servicequeue

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/endpointslice/util"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Pause is the time between two looks at a Service whose pods change all the time.
const Pause = 50 * time.Millisecond

// Queue holds the Services to reconcile.
type Queue struct {
	*loop.Controller
	Services cache.SharedIndexInformer

	mu   sync.Mutex
	last map[string]time.Time // when a Service was last reconciled
}

// New returns a queue for a loop.
func New(c *loop.Controller) *Queue {
	return &Queue{
		Controller: c, Services: c.Informer(&corev1.Service{}),
		last: map[string]time.Time{},
	}
}

// Pods returns the watch of pods. It adds the Services whose endpoints follow from a pod, before or
// after a change.
func (q *Queue) Pods() loop.Watch {
	return loop.On(q.Informer(&corev1.Pod{}), q.PodChanged)
}

// PodChanged adds the Services whose endpoints follow from a pod, before or after a change. Old is
// nil if the pod is new, and pod is nil if it has been deleted.
func (q *Queue) PodChanged(old, pod *corev1.Pod) {
	// A nil interface, unlike a nil pointer in an interface, says that there is no such object.
	var before, after any
	if old != nil {
		before = old
	}
	if pod != nil {
		after = pod
	}
	services, err := util.GetServicesToUpdate(
		corelisters.NewServiceLister(q.Indexer(&corev1.Service{})),
		util.GetPodUpdateProjectionKey(before, after))
	if err != nil {
		return // only lists of caches, which do not fail
	}
	for key := range services {
		q.Add(key)
	}
}

// Wait returns how long to wait before a Service is reconciled. If that is 0, the Service is
// reconciled now. The first change is published at once, and those that follow it together.
func (q *Queue) Wait(key string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if wait := q.last[key].Add(Pause).Sub(now); wait > 0 {
		return wait
	}
	q.last[key] = now
	return 0
}

// Gone forgets a Service that is gone.
func (q *Queue) Gone(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.last, key)
}
