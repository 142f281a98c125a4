// Package loop works off the keys of a control loop: each key by one worker at a time, again after an error, sooner rather than later.
package loop

import (
	"context"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	// firstDelay is how long a key waits after its first failure; the time doubles with each further one.
	firstDelay = 5 * time.Millisecond
	// DefaultMaxDelay is the longest time between two attempts. kube-controller-manager goes up to 1000 s to spare a server that is not
	// in the same process.
	DefaultMaxDelay = 5 * time.Second
)

// Sync brings the state of the world to what key asks for. A positive wait means that there is nothing to do but to look again, after
// that time at the latest; an error is reported, and the key tried again.
type Sync func(ctx context.Context, key string) (wait time.Duration, err error)

// Queue holds the keys that are to be worked off. It serves one [Queue.Run].
type Queue struct {
	name    string
	queue   workqueue.TypedDelayingInterface[string]
	limiter workqueue.TypedRateLimiter[string]
}

// New makes a queue; name is that of the controller.
func New(name string) *Queue {
	return &Queue{
		name:    name,
		queue:   workqueue.NewTypedDelayingQueue[string](),
		limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstDelay, DefaultMaxDelay),
	}
}

// Add puts key into the queue unless it is there.
func (q *Queue) Add(key string) { q.queue.Add(key) }

// Soon puts key into the queue and forgets how often it failed: something happened that may have made it easier.
func (q *Queue) Soon(key string) {
	q.limiter.Forget(key)
	q.queue.Add(key)
}

// Run calls work for the keys until ctx ends, in that many workers, once all informers have been read. It returns when the workers have.
func (q *Queue) Run(ctx context.Context, workers int, work Sync, synced ...cache.DoneChecker) error {
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
	wait, err := sync(ctx, key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		utilruntime.HandleErrorWithContext(ctx, err, "Trying again", "controller", q.name, "key", key)
		q.queue.AddAfter(key, q.limiter.When(key))
	case wait > 0:
		q.queue.AddAfter(key, min(wait, q.limiter.When(key)))
	default:
		q.limiter.Forget(key)
	}
	return true
}
