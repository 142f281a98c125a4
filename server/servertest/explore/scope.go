package explore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// scope is a test whose failures are findings, and whose end is not that of another test.
type scope struct {
	ctx      context.Context
	waitIdle func()
	// deadline panics in a bubble, by which servertest knows that it is in one.
	deadline func() (time.Time, bool)

	// cleanup, if set, is Cleanup of the test that ends what this one has begun.
	cleanup func(func())

	mu       sync.Mutex
	cleanups []func()
	errs     []error
}

// end calls the functions that end what the test has begun, the last one first. It returns what has
// failed.
func (s *scope) end() error {
	for {
		s.mu.Lock()
		last := len(s.cleanups) - 1
		if last < 0 {
			defer s.mu.Unlock()
			return errors.Join(s.errs...)
		}
		f := s.cleanups[last]
		s.cleanups = s.cleanups[:last]
		s.mu.Unlock()
		s.do(f)
	}
}

// do calls f in a goroutine of its own, which Fatalf ends, and waits for it.
func (s *scope) do(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	<-ended
}

// Deadline is the method of a *testing.T.
func (s *scope) Deadline() (time.Time, bool) { return s.deadline() }

// Context implements TB.
func (s *scope) Context() context.Context { return s.ctx }

// Idle implements TB.
func (s *scope) Idle() { s.waitIdle() }

// Helper implements servertest.TB.
func (s *scope) Helper() {}

// Cleanup implements servertest.TB.
func (s *scope) Cleanup(f func()) {
	if s.cleanup != nil {
		s.cleanup(f)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

// Errorf implements servertest.TB.
func (s *scope) Errorf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, fmt.Errorf(format, args...))
}

// Fatalf implements servertest.TB.
func (s *scope) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}
