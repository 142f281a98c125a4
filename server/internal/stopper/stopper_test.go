package stopper_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kinproc/kinproc/server/internal/stopper"
)

func TestStopUndoesInTheOppositeOrder(t *testing.T) {
	t.Parallel()
	s := stopper.New(t.Context())
	var order []string
	note := func(what string) func() error {
		return func() error { order = append(order, what); return nil }
	}
	s.Push("first", note("first"))
	s.EndGoroutines("goroutines")
	s.Push("last", note("last"))
	s.Go(func() {
		<-s.Context().Done()
		order = append(order, "goroutine")
	})
	s.Wait(func() { order = append(order, "waited") })
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"last", "goroutine", "waited", "first"}; !slices.Equal(order, want) {
		t.Errorf("got %v, want %v", order, want)
	}
	if s.Push("more", note("more")) || s.Go(func() {}) {
		t.Error("a stopper that has stopped takes more")
	}
}

func TestStopRunsAllSteps(t *testing.T) {
	t.Parallel()
	s := stopper.New(t.Context())
	one, two := errors.New("one"), errors.New("two")
	s.Push("one", func() error { return one })
	s.Push("two", func() error { return two })
	for range 2 {
		if err := s.Stop(t.Context()); !errors.Is(err, one) || !errors.Is(err, two) {
			t.Errorf("got %v, want both errors", err)
		}
	}
}

func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	s := stopper.New(t.Context())
	release := make(chan struct{})
	s.Push("a clock", func() error { <-release; return nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// The stop has begun when the error names the step.
	for {
		err := s.Stop(ctx)
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want %v", err, context.Canceled)
		}
		if strings.Contains(err.Error(), "waiting for a clock") {
			break
		}
	}
	close(release)
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEveryEndsWithTheGoroutines(t *testing.T) {
	t.Parallel()
	s := stopper.New(t.Context())
	twice, n := make(chan struct{}), 0
	s.Every(time.Millisecond, func(context.Context) {
		if n++; n == 2 {
			close(twice)
		}
	})
	<-twice
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Every(time.Nanosecond, func(context.Context) { t.Error("called after the stop") })
	if err := s.Context().Err(); err == nil {
		t.Error("the context goes on")
	}
}

func TestOnlyTheFirstFailureCounts(t *testing.T) {
	t.Parallel()
	s := stopper.New(t.Context())
	if err := s.Err(); err != nil {
		t.Errorf("failed at once: %v", err)
	}
	first := errors.New("first")
	s.Fail(first)
	s.Fail(errors.New("second"))
	<-s.Failed()
	if err := s.Err(); err != first {
		t.Errorf("got %v, want %v", err, first)
	}
}
