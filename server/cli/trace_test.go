package cli

import (
	"testing"
	"time"

	"github.com/kinproc/kinproc/chain/trace"
)

// The times of the steps themselves, and what is outside of them, are the time of the request.
func TestTimesOfStepsAddUp(t *testing.T) {
	t.Parallel()
	step := func(at string, start, took time.Duration) trace.Step {
		return trace.Step{At: at, Start: start * time.Millisecond, Took: took * time.Millisecond}
	}
	nested, outside := nest([]trace.Step{
		step("authentication", 1, 2), step("aggregator", 4, 10), step("core", 5, 8),
		step("decoding", 5, 1), step("etcd", 7, 3), step("encoding", 12, 1),
	}, 20*time.Millisecond)
	type times struct {
		level  int
		itself time.Duration
	}
	want := []times{{0, 2}, {0, 2}, {1, 3}, {2, 1}, {2, 3}, {2, 1}}
	sum := outside
	for i, s := range nested {
		if got := (times{s.level, s.itself / time.Millisecond}); got != want[i] {
			t.Errorf("%s: level %d, itself %s, want %v", s.At, got.level, s.itself, want[i])
		}
		sum += s.itself
	}
	if outside != 8*time.Millisecond || sum != 20*time.Millisecond {
		t.Errorf("outside is %s, and the sum %s", outside, sum)
	}

	// A step that ends a little late is inside of the one around it, and the sum stays.
	late := step("etcd", 2, 3)
	late.Took += time.Microsecond / 2
	nested, outside = nest([]trace.Step{step("core", 1, 4), late}, 6*time.Millisecond)
	if nested[1].level != 1 || nested[0].itself != time.Millisecond ||
		outside != 2*time.Millisecond {
		t.Errorf("nested are %+v, and outside is %s", nested, outside)
	}
	if _, outside = nest(nil, time.Second); outside != time.Second {
		t.Errorf("without steps, outside is %s", outside)
	}
}
