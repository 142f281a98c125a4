// Package stopper ends what the start of a control plane has begun: files, connections, goroutines
// and timers, in the opposite order.
package stopper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Stopper is a stack of steps that undo a start. The end of the goroutines that it runs is one of
// them; see [Stopper.EndGoroutines].
type Stopper struct {
	ctx    context.Context
	cancel context.CancelFunc

	failing sync.Once
	failed  chan struct{}
	failure error // valid once failed is closed

	stopping sync.Once
	stopped  chan struct{}
	err      error // of the steps, valid once stopped is closed

	running sync.WaitGroup

	mu      sync.Mutex
	steps   []step
	begun   bool   // the steps are being run
	what    string // what the step ends that is being run
	ended   bool   // there are to be no goroutines any more
	timers  []*time.Timer
	waiting []func()
}

type step struct {
	what string
	do   func() error
}

// New returns a stopper with nothing to stop. Its goroutines have the values of ctx.
func New(ctx context.Context) *Stopper {
	s := &Stopper{failed: make(chan struct{}), stopped: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

// Push adds a step. The argument what names the thing that the step ends, for the error of a stop
// that takes too long. Once the stop has begun, Push adds nothing and returns false.
func (s *Stopper) Push(what string, do func() error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		s.steps = append(s.steps, step{what, do})
	}
	return !s.begun
}

// Stop runs all steps, the last one first, even if some of them fail, and waits for them. If ctx
// ends early, the stop continues in the background, and the error says what Stop was waiting for.
// Further calls wait for the same stop and return its error.
func (s *Stopper) Stop(ctx context.Context) error {
	s.stopping.Do(func() {
		go func() {
			defer close(s.stopped)
			s.err = s.run()
		}()
	})
	select {
	case <-s.stopped:
		return s.err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Errorf("stop: waiting for %s: %w", s.what, context.Cause(ctx))
	}
}

func (s *Stopper) run() error {
	var errs []error
	for {
		next, ok := s.next()
		if !ok {
			s.end()
			return errors.Join(errs...)
		}
		errs = append(errs, next.do())
	}
}

func (s *Stopper) next() (step, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
	last := len(s.steps) - 1
	if last < 0 {
		return step{}, false
	}
	next := s.steps[last]
	s.steps, s.what = s.steps[:last], next.what
	return next, true
}

// Fail notes why the control plane cannot continue. Only the first reason counts.
func (s *Stopper) Fail(err error) {
	s.failing.Do(func() {
		s.failure = err
		close(s.failed)
	})
}

// Failed returns a channel that is closed by [Stopper.Fail].
func (s *Stopper) Failed() <-chan struct{} { return s.failed }

// Err returns the reason of [Stopper.Fail], or nil.
func (s *Stopper) Err() error {
	select {
	case <-s.failed:
		return s.failure
	default:
		return nil
	}
}
