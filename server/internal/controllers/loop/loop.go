// Package loop provides the work queue of a controller. Each key is processed by one worker at a
// time and retried with backoff after an error. Delays are shorter than in kube-controller-manager.
package loop

import (
	"context"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kinproc/kinproc/server/internal/epoch"
)

const (
	// firstDelay is the delay after the first failure of a key. It doubles with each further
	// failure.
	firstDelay = 5 * time.Millisecond
	// DefaultMaxDelay is the longest delay between two attempts. kube-controller-manager backs off
	// to up to 1000 s, to spare a server that is not in the same process.
	DefaultMaxDelay = 5 * time.Second
)

// Sync reconciles the state that key stands for. If wait is positive, there is nothing to do but to
// check again, after that time at the latest. An error is reported and the key is retried.
type Sync func(ctx context.Context, key string) (wait time.Duration, err error)

// Queue holds the keys to process. It serves one [Queue.Run].
type Queue struct {
	name    string
	queue   workqueue.TypedDelayingInterface[string]
	limiter workqueue.TypedRateLimiter[string]
}

// New returns a queue. Name is the name of the controller.
func New(name string) *Queue {
	return &Queue{
		name:    name,
		queue:   workqueue.NewTypedDelayingQueue[string](),
		limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstDelay, DefaultMaxDelay),
	}
}

// Add adds key to the queue unless it is already there.
func (q *Queue) Add(key string) { q.queue.Add(key) }

// Soon adds key to the queue and resets its backoff, because something has happened that may let it
// succeed.
func (q *Queue) Soon(key string) {
	q.limiter.Forget(key)
	q.queue.Add(key)
}

// Stop ends the queue's goroutine. A controller that may return without [Queue.Run] defers it, for
// instance because its informer has stopped already.
func (q *Queue) Stop() { q.queue.ShutDown() }

// Run calls work for the keys until ctx ends, with the given number of workers, once all informers
// have synced. It returns when the workers have ended.
func (q *Queue) Run(
	ctx context.Context, workers int, work Sync, synced ...cache.DoneChecker,
) error {
	defer q.queue.ShutDown()
	if !cache.WaitFor(ctx, "", synced...) {
		return nil
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for q.next(ctx, work) {
			}
		})
	}
	<-ctx.Done()
	q.queue.ShutDown()
	running.Wait()
	return nil
}

func (q *Queue) next(ctx context.Context, sync Sync) bool {
	key, ended := q.queue.Get()
	if ended {
		return false
	}
	defer q.queue.Done(key)
	if ctx.Err() != nil {
		return true // drain
	}
	wait, err := sync(epoch.Begin(ctx), key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		utilruntime.HandleErrorWithContext(ctx, err, "Sync failed, trying again", "controller",
			q.name, "key", key)
		q.queue.AddAfter(key, q.limiter.When(key))
	case wait > 0:
		q.queue.AddAfter(key, min(wait, q.limiter.When(key)))
	default:
		q.limiter.Forget(key)
	}
	return true
}
