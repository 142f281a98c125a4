package server

import (
	"context"
	"sync"
)

// tasks are the goroutines of a control plane: API servers, hooks and control loops.
type tasks struct {
	// ctx ends when the control plane stops.
	ctx  context.Context
	fail func(error)

	mu      sync.Mutex
	ended   bool
	running sync.WaitGroup
}

// newTasks makes tasks without a goroutine. A task calls fail when the control plane cannot go on.
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

// run runs f in a goroutine that Stop waits for. Once Stop has begun, run returns false instead.
func (t *tasks) run(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.running.Go(f)
	}
	return !t.ended
}
