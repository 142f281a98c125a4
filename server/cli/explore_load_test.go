package cli

import (
	"testing"
	"time"
)

// A run that waits for nine tenths of its time leaves room for others.
func TestParallelRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		elapsed, running time.Duration
		want             int
	}{
		{30 * time.Second, 3 * time.Second, 16},
		{30 * time.Second, 6 * time.Second, 8},
		{30 * time.Second, time.Minute, 2},
		{30 * time.Second, 0, 16},
	} {
		l := load{c.elapsed, c.running}
		if got := l.parallel(2); got != c.want {
			t.Errorf("%s of %s: %d runs, want %d", c.running, c.elapsed, got, c.want)
		}
	}
}
