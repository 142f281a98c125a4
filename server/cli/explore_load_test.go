package cli

import (
	"testing"
	"time"
)

// A run that waits for nine tenths of its time leaves room for others, unless others use it.
func TestParallelRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		running, idle time.Duration
		want          int
	}{
		{3 * time.Second, 57 * time.Second, 16},
		{6 * time.Second, 54 * time.Second, 8},
		{time.Minute, 0, 2},
		{3 * time.Second, 6 * time.Second, 2},
		{3 * time.Second, 12 * time.Second, 4},
		{0, time.Minute, 16},
		{0, 0, 2},
	} {
		l := load{c.running, c.idle}
		if got := l.parallel(2); got != c.want {
			t.Errorf("running %s, idle %s: %d runs, want %d", c.running, c.idle, got, c.want)
		}
	}
}
