package stopper

import (
	"context"
	"time"
)

// EndGoroutines adds the step that ends the goroutines, and the contexts of [Stopper.Context]. What
// has been pushed before ends after them. Without this step, the goroutines end last.
func (s *Stopper) EndGoroutines(what string) {
	s.Push(what, func() error {
		s.end()
		return nil
	})
}

func (s *Stopper) end() {
	s.mu.Lock()
	s.ended = true
	waiting := s.waiting
	s.waiting = nil
	for _, timer := range s.timers {
		timer.Stop()
	}
	s.mu.Unlock()
	s.cancel()
	s.running.Wait()
	for _, wait := range waiting {
		wait()
	}
}

// Context returns the context of the goroutines. It ends with them, before they are waited for.
func (s *Stopper) Context() context.Context { return s.ctx }

// Go runs f in a goroutine that Stop waits for. Once the goroutines are ending, it does nothing and
// returns false.
func (s *Stopper) Go(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.running.Go(f)
	}
	return !s.ended
}

// Every calls f at intervals. There is no goroutine in between.
func (s *Stopper) Every(interval time.Duration, f func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(interval, func() {
		if !s.begin() {
			return
		}
		defer s.running.Done()
		f(s.ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.ended {
			timer.Reset(interval)
		}
	})
	s.timers = append(s.timers, timer)
}

func (s *Stopper) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.running.Add(1)
	}
	return !s.ended
}

// Wait makes Stop call f after it has waited for the goroutines. F waits for other goroutines that
// end with the context.
func (s *Stopper) Wait(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, f)
}
