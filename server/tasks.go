package server

import (
	"context"
	"slices"
	"sync"

	"k8s.io/client-go/informers"
)

// tasks are the goroutines of a control plane: API servers, hooks and control loops.
type tasks struct {
	// ctx ends when the control plane stops.
	ctx  context.Context
	fail func(error)

	mu      sync.Mutex
	ended   bool
	running sync.WaitGroup
	// factories are those of informers that were started late
	factories []informers.SharedInformerFactory
}

// newTasks returns tasks with no goroutines yet. A task calls fail if the control plane cannot
// continue.
func newTasks(o *Options, fail func(error), u *undo) *tasks {
	ctx, cancel := context.WithCancel(o.withLog(context.Background()))
	t := &tasks{ctx: ctx, fail: fail}
	u.push("the API servers and control loops", func() error {
		t.mu.Lock()
		t.ended = true
		t.mu.Unlock()
		cancel()
		t.running.Wait()
		return nil
	})
	return t
}

// run runs f in a goroutine that Stop waits for. Once Stop has begun, it does nothing and returns
// false.
func (t *tasks) run(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.running.Go(f)
	}
	return !t.ended
}

// starts notes the factory of informers that are started late.
func (t *tasks) starts(f informers.SharedInformerFactory) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.factories = append(t.factories, f)
}

// informers returns the factories of informers that were started late.
func (t *tasks) informers() []informers.SharedInformerFactory {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.factories)
}
