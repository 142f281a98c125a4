package loop

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kinproc/kinproc/server/internal/requests/epoch"
)

const (
	// firstDelay is the delay after the first failure of a key. It doubles with each further
	// failure.
	firstDelay = 5 * time.Millisecond
	// slowly is how long a call takes whose key is slow the next time. A pass over a large object
	// takes less.
	slowly = time.Second
	// longest is how long a call may take. Its context ends then, so that no object keeps the
	// others waiting for ever.
	longest = 30 * time.Second
	// maxDelay is the longest delay between two attempts. kube-controller-manager backs off
	// to up to 1000 s, to spare a server that is not in the same process.
	maxDelay = 5 * time.Second
)

// Sync reconciles the state that key stands for. If requeueAfter is positive, it is called again
// after that time, unless something happens before. An error is reported, and the key is tried
// again with backoff, unless the error is a [Poll] or a conflict.
type Sync[K comparable] func(ctx context.Context, key K) (requeueAfter time.Duration, err error)

// Poll is an error of a [Sync] that waits for something that causes no event. The key is tried
// again with backoff, and after that time at the latest. It is not reported.
type Poll time.Duration

// Error implements error.
func (p Poll) Error() string { return "it is too early, checking again" }

// conflictPoll is the Poll for a conflict. The informer of the object is behind, and the change
// causes an event most of the time.
const conflictPoll = Poll(time.Second)

// Queue holds the keys to process, which are names in most controllers.
type Queue = Of[string]

// Of holds the keys to process. It serves one [Of.Run]. It has no goroutines of its own, so it
// needs no end.
type Of[K comparable] struct {
	name    string
	queue   workqueue.TypedInterface[K]
	limiter workqueue.TypedRateLimiter[K]

	mu    sync.Mutex
	later map[K]*time.Timer // of the keys that are processed again after a delay
	slow  map[K]bool        // the keys whose last call took long
}

// New returns a queue. Name is the name of the controller.
func New(name string) *Queue { return NewOf[string](name, maxDelay) }

// NewOf returns a queue whose delay between two attempts is at most longest.
func NewOf[K comparable](name string, longest time.Duration) *Of[K] {
	return &Of[K]{
		name:    name,
		queue:   workqueue.NewTyped[K](),
		limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[K](firstDelay, longest),
		later:   map[K]*time.Timer{},
		slow:    map[K]bool{},
	}
}

// Add adds key to the queue unless it is already there. A backoff of the key goes on.
func (q *Of[K]) Add(key K) { q.queue.Add(key) }

// Enqueue adds key to the queue and ends its backoff, because something has happened that may let
// it succeed.
func (q *Of[K]) Enqueue(key K) {
	q.limiter.Forget(key)
	q.queue.Add(key)
}

// EnqueueAfter adds key to the queue after a delay. It replaces an earlier delay of the key.
func (q *Of[K]) EnqueueAfter(key K, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopTimer(key)
	var timer *time.Timer
	timer = time.AfterFunc(delay, func() {
		q.mu.Lock()
		if q.later[key] == timer {
			delete(q.later, key)
		}
		q.mu.Unlock()
		q.queue.Add(key) // does nothing once Run has returned
	})
	q.later[key] = timer
}

func (q *Of[K]) stopTimer(key K) {
	if timer, ok := q.later[key]; ok {
		timer.Stop()
		delete(q.later, key)
	}
}

func (q *Of[K]) stop() {
	q.queue.ShutDown()
	q.mu.Lock()
	defer q.mu.Unlock()
	for key := range q.later {
		q.stopTimer(key)
	}
}

// Run calls work for the keys until ctx ends, once all informers have synced. It returns when the
// last call of work has returned. At most the given number of calls, each for another key, run at a
// time, and at most half as many for slow keys, so that these do not keep the others waiting. There
// is a goroutine for a call only while there is something to do.
func (q *Of[K]) Run(
	ctx context.Context, workers int, work Sync[K], synced ...cache.DoneChecker,
) error {
	defer q.stop()
	if !cache.WaitFor(ctx, "", synced...) {
		return nil
	}
	defer context.AfterFunc(ctx, q.queue.ShutDown)()
	var running sync.WaitGroup
	defer running.Wait()
	slots, slow := make(chan struct{}, workers), make(chan struct{}, max(1, workers/2))
	for {
		key, ended := q.queue.Get()
		if ended {
			return nil
		}
		if workers == 1 {
			q.process(ctx, work, key)
			continue
		}
		if q.isSlow(key) {
			running.Go(func() {
				slow <- struct{}{}
				slots <- struct{}{}
				defer func() { <-slots; <-slow }()
				q.process(ctx, work, key)
			})
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			q.process(ctx, work, key)
		})
	}
}

func (q *Of[K]) isSlow(key K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.slow[key]
}

// took notes how long a call for a key took.
func (q *Of[K]) took(key K, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d >= slowly {
		q.slow[key] = true
	} else {
		delete(q.slow, key)
	}
}

func (q *Of[K]) process(ctx context.Context, work Sync[K], key K) {
	defer q.queue.Done(key)
	if ctx.Err() != nil {
		return // drain
	}
	start := time.Now()
	pass, cancel := context.WithTimeout(epoch.Begin(ctx), longest)
	defer cancel()
	requeueAfter, err := work(pass, key)
	q.took(key, time.Since(start))
	var poll Poll
	if apierrors.IsConflict(err) {
		poll = conflictPoll
	}
	switch {
	case ctx.Err() != nil:
	case poll > 0, errors.As(err, &poll):
		q.EnqueueAfter(key, min(time.Duration(poll), q.limiter.When(key)))
	case err != nil:
		utilruntime.HandleErrorWithContext(ctx, err, "Sync failed, trying again", "controller",
			q.name, "key", key)
		q.EnqueueAfter(key, q.limiter.When(key))
	default:
		q.limiter.Forget(key)
		if requeueAfter > 0 {
			q.EnqueueAfter(key, requeueAfter)
		}
	}
}
