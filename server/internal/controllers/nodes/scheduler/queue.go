package scheduler

import (
	"container/heap"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A pod that was tried in vain and may have got a chance is tried again after a pause, which
// doubles with each attempt. kube-scheduler pauses for 1 s to 10 s.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// queue holds the pods without a node.
type queue struct {
	pods map[types.UID]*queued
	// idle are the pods to which events matter: those that wait for one and those being tried.
	idle   map[*queued]struct{}
	paused map[int32]map[*queued]struct{} // by priority
	// active are the pods to try, by namespace. Namespaces take turns, so that nobody waits for the
	// many pods of somebody else.
	active map[string]*turns
	turn   uint64 // the last one
	next   uint64 // the order of arrival
	wake   chan struct{}
	// after calls a function later.
	after func(time.Duration, func()) *time.Timer
}

type state int

const (
	waiting state = iota // for an event
	active
	paused
	trying
)

// queued is a pod in the queue.
type queued struct {
	*pod
	wishes  wishes
	invalid error // why there are no wishes
	state   state
	arrival uint64
	index   int // in the heap
	timer   *time.Timer

	attempts int
	tried    time.Time     // the last attempt
	took     time.Duration // while nothing else was decided
	// helps are the events after which the pod is worth another attempt. Only is true if a changed
	// node helps only if it suits the pod itself.
	helps event
	seen  event // the events during the attempt
	// slow is set if the last attempt took too long to allocate devices, and stop ends one that
	// does so now.
	slow bool
	stop func()
	// binding is set while devices that the pod has got are awaited.
	binding bool
	// erred is set if the last attempt ended with an error that the pod was told of.
	erred bool
}

func newQueue(after func(time.Duration, func()) *time.Timer) *queue {
	return &queue{
		pods: map[types.UID]*queued{}, idle: map[*queued]struct{}{},
		paused: map[int32]map[*queued]struct{}{},
		active: map[string]*turns{}, wake: make(chan struct{}, 1), after: after,
	}
}

// turns are the pods of a namespace that are to be tried.
type turns struct {
	ready
	last uint64 // the turn in which one was tried; 0 if none was since there are any
}

// put adds a pod or changes it. Retry says whether the change may make it fit.
func (q *queue) put(p *pod, retry func(old *pod) bool) {
	known := q.pods[p.UID]
	if known == nil {
		q.next++
		known = &queued{arrival: q.next}
		q.pods[p.UID] = known
		known.set(p)
		q.activate(known)
		return
	}
	old := known.pod
	if retry(old) {
		known.set(p)
		q.happened(known, podChanged)
	} else {
		known.pod = p
	}
	if known.state == active {
		heap.Fix(&q.active[p.Namespace].ready, known.index)
	}
}

func (p *queued) set(info *pod) {
	p.pod = info
	p.wishes, p.invalid = newWishes(info.Pod)
}

func (q *queue) remove(uid types.UID) {
	p := q.pods[uid]
	if p == nil {
		return
	}
	delete(q.pods, uid)
	delete(q.idle, p)
	q.unpause(p)
	if p.state == active {
		q.take(p)
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.stop != nil {
		p.stop()
	}
}

// has reports whether p is still in the queue.
func (q *queue) has(p *queued) bool { return q.pods[p.UID] == p }

// activate lets a pod be tried.
func (q *queue) activate(p *queued) {
	p.state = active
	delete(q.idle, p)
	q.unpause(p)
	of := q.active[p.Namespace]
	if of == nil {
		of = &turns{}
		q.active[p.Namespace] = of
	}
	heap.Push(&of.ready, p)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// pop returns the next pod to try, or nil. It ends the pauses of pods that are more important than
// that one, because it could take the room that they are about to get.
func (q *queue) pop() *queued {
	first := q.first()
	if first == nil {
		return nil
	}
	priority := first.ready[0].priority
	for higher, pods := range q.paused {
		if higher <= priority {
			continue
		}
		for other := range pods {
			other.timer.Stop()
			q.activate(other)
		}
	}
	first = q.first()
	q.turn++
	first.last = q.turn
	p := first.ready[0]
	q.take(p)
	p.state, p.seen, p.tried = trying, 0, time.Now()
	p.attempts++
	q.idle[p] = struct{}{}
	return p
}

// first returns the pods of the namespace whose turn it is, or nil if there are none: that with the
// most important pod, and of several such ones that whose last turn is longest ago.
func (q *queue) first() *turns {
	var first *turns
	for _, of := range q.active {
		if first == nil || of.ready[0].priority > first.ready[0].priority ||
			of.ready[0].priority == first.ready[0].priority && of.last < first.last {
			first = of
		}
	}
	return first
}

// take removes a pod from those to try.
func (q *queue) take(p *queued) {
	of := q.active[p.Namespace]
	heap.Remove(&of.ready, p.index)
	if len(of.ready) == 0 {
		delete(q.active, p.Namespace)
	}
}

// failed ends an attempt in vain. The pod waits for one of the events.
func (q *queue) failed(p *queued, helps event) {
	if !q.has(p) {
		return
	}
	p.state, p.helps = waiting, helps|podChanged
	if p.seen&p.helps != 0 {
		q.retry(p)
	}
}

// happened tells a pod of an event.
func (q *queue) happened(p *queued, e event) {
	switch {
	case p.state == trying:
		p.seen |= e
	case p.state == waiting && p.helps&e != 0:
		q.retry(p)
	}
}

// happenedToAll tells all pods of an event, except those that hopeless reports.
func (q *queue) happenedToAll(e event, hopeless func(*queued) bool) {
	for p := range q.idle {
		if p.state == trying || hopeless == nil || !hopeless(p) {
			q.happened(p, e)
		}
	}
}

// retry lets a pod be tried again, after a pause since the last attempt. Attempts that take long,
// because the pod has very many terms, are rare.
func (q *queue) retry(p *queued) {
	longest := maxPause
	if p.erred {
		longest = slowPause // each time there may be another message, and so an event
	}
	pause := max(min(firstPause<<min(p.attempts-1, 10), longest), min(10*p.took, slowPause))
	if p.slow {
		pause = slowPause
	}
	pause -= time.Since(p.tried)
	if pause <= 0 {
		q.activate(p)
		return
	}
	p.state = paused
	delete(q.idle, p)
	if q.paused[p.priority] == nil {
		q.paused[p.priority] = map[*queued]struct{}{}
	}
	q.paused[p.priority][p] = struct{}{}
	p.timer = q.after(pause, func() {
		if q.has(p) && p.state == paused {
			q.activate(p)
		}
	})
}

// unpause ends the pause of a pod, whose priority never changes.
func (q *queue) unpause(p *queued) {
	delete(q.paused[p.priority], p)
	if len(q.paused[p.priority]) == 0 {
		delete(q.paused, p.priority)
	}
}

// retryStale lets the pods be tried again that have waited for an event for too long.
func (q *queue) retryStale(patience time.Duration) {
	for p := range q.idle {
		if p.state == waiting && time.Since(p.tried) >= patience {
			q.retry(p)
		}
	}
}

// ready is a heap of pods, by priority and by arrival.
type ready []*queued

func (r ready) Len() int { return len(r) }

func (r ready) Less(i, j int) bool {
	if r[i].priority != r[j].priority {
		return r[i].priority > r[j].priority
	}
	return r[i].arrival < r[j].arrival
}

func (r ready) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].index, r[j].index = i, j
}

// Push implements heap.Interface.
func (r *ready) Push(p any) {
	p.(*queued).index = len(*r)
	*r = append(*r, p.(*queued))
}

// Pop implements heap.Interface.
func (r *ready) Pop() any {
	last := len(*r) - 1
	p := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	return p
}
