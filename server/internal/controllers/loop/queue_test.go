package loop

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestSlowKeys has as many keys that take long as there are workers. After their first calls, they
// do not keep another key waiting.
func TestSlowKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := New("test")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		calls := map[string]int{}
		took := make(chan time.Time)
		go func() {
			done <- q.Run(ctx, 2, func(ctx context.Context, key string) (time.Duration, error) {
				if key == "quick" {
					took <- time.Now()
					return 0, nil
				}
				q.mu.Lock()
				calls[key]++
				q.mu.Unlock()
				select {
				case <-time.After(time.Hour):
				case <-ctx.Done():
				}
				return 0, nil
			})
		}()
		q.Add("one")
		q.Add("two")
		time.Sleep(time.Minute)
		q.Add("one") // again at once after the first call
		q.Add("two")
		time.Sleep(time.Hour) // the second calls
		start := time.Now()
		q.Add("quick")
		if wait := (<-took).Sub(start); wait > time.Second {
			t.Errorf("a key waited %s for keys that take long", wait)
		}
		time.Sleep(2 * time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if calls["one"] != 2 || calls["two"] != 2 {
			t.Errorf("the keys that take long were processed so often: %v", calls)
		}
	})
}

// call is what a Sync returns.
type call struct {
	requeueAfter time.Duration
	err          error
}

// TestRequeue has keys whose calls return something until they are settled. It checks the times
// between the calls.
func TestRequeue(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(corev1.Resource("pods"), "p", errors.New("changed"))
	for name, test := range map[string]struct {
		calls []call
		want  []time.Duration
	}{
		"exactly": {
			[]call{{time.Hour, nil}, {time.Minute, nil}}, []time.Duration{time.Hour, time.Minute},
		},
		"failures": {
			[]call{{0, errors.New("a")}, {time.Hour, errors.New("b")}, {0, errors.New("c")}},
			[]time.Duration{firstDelay, 2 * firstDelay, 4 * firstDelay},
		},
		"success between failures": {
			[]call{{0, errors.New("a")}, {time.Minute, nil}, {0, errors.New("b")}},
			[]time.Duration{firstDelay, time.Minute, firstDelay},
		},
		"polls": {
			[]call{
				{0, Poll(time.Hour)}, {0, fmt.Errorf("wrapped: %w", Poll(time.Hour))},
				{0, Poll(12 * time.Millisecond)}, {time.Hour, Poll(15 * time.Millisecond)},
			},
			[]time.Duration{
				firstDelay, 2 * firstDelay, 12 * time.Millisecond, 15 * time.Millisecond,
			},
		},
		"conflicts": {
			slices.Repeat([]call{{0, conflict}}, 12),
			[]time.Duration{
				firstDelay, 2 * firstDelay, 4 * firstDelay, 8 * firstDelay, 16 * firstDelay,
				32 * firstDelay, 64 * firstDelay, 128 * firstDelay, time.Second, time.Second, time.Second,
				time.Second,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := New("test")
				ctx, cancel := context.WithCancel(t.Context())
				var times []time.Time
				done := make(chan error)
				go func() {
					done <- q.Run(ctx, 1, func(context.Context, string) (time.Duration, error) {
						n := len(times)
						times = append(times, time.Now())
						if n < len(test.calls) {
							return test.calls[n].requeueAfter, test.calls[n].err
						}
						return 0, nil
					})
				}()
				q.Add("key")
				time.Sleep(24 * time.Hour)
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				var got []time.Duration
				for i := range times[1:] {
					got = append(got, times[i+1].Sub(times[i]))
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("the times between calls are %v, want %v", got, test.want)
				}
			})
		})
	}
}

// TestEnqueue ends the backoff of a key, and Add does not.
func TestEnqueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := New("test")
		ctx, cancel := context.WithCancel(t.Context())
		var times []time.Time
		done := make(chan error)
		go func() {
			done <- q.Run(ctx, 1, func(context.Context, string) (time.Duration, error) {
				times = append(times, time.Now())
				return 0, errors.New("failure")
			})
		}()
		q.Add("key")
		time.Sleep(time.Minute) // the delay is the longest one
		for _, test := range []struct {
			add   func(string)
			delay time.Duration
		}{{q.Add, maxDelay}, {q.Enqueue, firstDelay}} {
			synctest.Wait()
			n := len(times)
			test.add("key")
			synctest.Wait()
			time.Sleep(test.delay)
			synctest.Wait()
			if got := times[n+1].Sub(times[n]); len(times) != n+2 || got != test.delay {
				t.Errorf("the next call comes after %s, want %s", got, test.delay)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestLongestPass has a key that would keep the only worker for ever.
func TestLongestPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := New("test")
		ctx, cancel := context.WithCancel(t.Context())
		other, done := make(chan time.Time, 1), make(chan error)
		go func() {
			done <- q.Run(ctx, 1, func(ctx context.Context, key string) (time.Duration, error) {
				if key == "other" {
					other <- time.Now()
					return 0, nil
				}
				<-ctx.Done()
				return 0, ctx.Err()
			})
		}()
		start := time.Now()
		q.Add("endless")
		synctest.Wait()
		q.Add("other")
		if took := (<-other).Sub(start); took != longest {
			t.Errorf("another key was processed after %s, want %s", took, longest)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]time.Duration{
		0: 0, 90: 90 * time.Second, -1: -time.Second,
		math.MaxInt64: math.MaxInt64 / time.Second * time.Second,
		math.MinInt64: -math.MaxInt64 / time.Second * time.Second,
	} {
		if got := Seconds(n); got != want {
			t.Errorf("%d seconds are %s, want %s", n, got, want)
		}
	}
}
