package loop

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"
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
