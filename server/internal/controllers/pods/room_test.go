package pods

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestRoom(t *testing.T) {
	t.Parallel()
	var c crowds
	now := time.Now()
	for _, test := range []struct {
		has, lacks, want int
	}{
		{0, 0, 0},
		{3, -1, 0},
		{0, 7, 7},
		{0, math.MaxInt32, burst},
		{crowd - 1, math.MaxInt32, burst},
	} {
		if n, wait := c.room("owner", test.has, test.lacks, now); n != test.want || wait != 0 {
			t.Errorf("with %d pods of %d more: got %d, and a wait of %s, want %d", test.has, test.lacks,
				n, wait, test.want)
		}
	}
	const second = time.Second
	for _, test := range []struct {
		after     time.Duration
		has, want int
		wait      time.Duration
	}{
		{0, crowd, 500, second},
		{second / 4, crowd, 0, second * 3 / 4},
		{second, 50_000, 20, second},
		{2 * second, math.MaxInt32, 1, second},
	} {
		n, wait := c.room("owner", test.has, math.MaxInt32, now.Add(test.after))
		if n != test.want || wait != test.wait {
			t.Errorf("a crowd of %d after %s: got %d and %s, want %d and %s", test.has, test.after, n, wait,
				test.want, test.wait)
		}
	}
	if n, _ := c.room("other", crowd, 1, now); n != 1 {
		t.Errorf("another owner got %d pods, want 1", n)
	}
	if c.forget("owner"); len(c.last) != 1 {
		t.Errorf("the crowds after one is gone: %v", c.last)
	}
}

// TestSlowStart has requests of which there is only time for some in a pass.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		n, err := SlowStart(math.MaxInt32, func(int) error {
			time.Sleep(longest / 10)
			return nil
		})
		if took := time.Since(start); err != nil || n < parallel || n > 10*parallel || took > 2*longest {
			t.Errorf("%d calls in %s, error %v", n, took, err)
		}
		refused := errors.New("refused")
		if n, err := SlowStart(500, func(i int) error {
			if i > 5 {
				return refused
			}
			return nil
		}); n != 6 || !errors.Is(err, refused) {
			t.Errorf("%d calls succeeded, error %v", n, err)
		}
	})
}
