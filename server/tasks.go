package server

import (
	"context"
	"slices"
	"sync"
	"time"

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
	timers  []*time.Timer
	// others are what else Stop waits for.
	others []func()
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
		others := t.others
		for _, timer := range t.timers {
			timer.Stop()
		}
		t.mu.Unlock()
		cancel()
		t.running.Wait()
		for _, wait := range others {
			wait()
		}
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

// every calls f at intervals. There is no goroutine in between.
func (t *tasks) every(interval time.Duration, f func(context.Context)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(interval, func() {
		if !t.begin() {
			return
		}
		defer t.running.Done()
		f(t.ctx)
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.ended {
			timer.Reset(interval)
		}
	})
	t.timers = append(t.timers, timer)
}

func (t *tasks) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.running.Add(1)
	}
	return !t.ended
}

// join makes Stop wait for what wait waits for, which ends with ctx.
func (t *tasks) join(wait func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.others = append(t.others, wait)
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
