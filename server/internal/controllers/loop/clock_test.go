package loop

import (
	"testing"
	"time"
)

// The clock has been set back if something began in the future. A minute is the difference between
// two clocks.
func TestLeft(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for began, want := range map[time.Duration]time.Duration{
		-20 * time.Second: -10 * time.Second, -4 * time.Second: 6 * time.Second,
		4 * time.Second: 14 * time.Second, time.Hour: 0,
	} {
		if got := Left(now.Add(began), 10*time.Second, now); got != want {
			t.Errorf("of 10 s that began %s from now, %s are left, want %s", began, got, want)
		}
	}
}

func TestSeen(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for ahead, want := range map[time.Duration]time.Duration{
		-time.Hour: time.Hour, time.Hour: 0,
	} {
		says := now.Add(ahead).Round(0) // without the monotonic clock, as in objects
		if got := now.Sub(Seen(says, now)); got != want {
			t.Errorf("what says %s from now was %s ago, want %s", ahead, got, want)
		}
	}
}
