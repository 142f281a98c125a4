package nesting

import (
	"fmt"
	"testing"
	"time"

	"github.com/kinproc/kinproc/chain/trace"
)

// The times of the steps themselves, and what is outside of them, are the time of the request.
func TestTimesAddUp(t *testing.T) {
	t.Parallel()
	step := func(at string, start, took time.Duration) trace.Step {
		return trace.Step{At: at, Start: start * time.Millisecond, Took: took * time.Millisecond}
	}
	steps := []trace.Step{
		step("authentication", 1, 2), step("aggregator", 4, 10), step("core", 5, 8),
		step("decoding", 5, 1), step("etcd", 7, 3), step("encoding", 12, 1),
	}
	each, outside := Of(steps, 20*time.Millisecond)
	type times struct {
		level  int
		itself time.Duration
	}
	want := []times{{0, 2}, {0, 2}, {1, 3}, {2, 1}, {2, 3}, {2, 1}}
	sum := outside.Itself
	for i, s := range each {
		if got := (times{s.Level, s.Itself / time.Millisecond}); got != want[i] {
			t.Errorf("%s: level %d, itself %s, want %v", steps[i].At, got.level, s.Itself, want[i])
		}
		sum += s.Itself
	}
	if outside.Itself != 8*time.Millisecond || sum != 20*time.Millisecond {
		t.Errorf("outside is %s, and the sum %s", outside.Itself, sum)
	}
	if got := fmt.Sprint(each[2].Gaps); got != "[[6ms 7ms] [10ms 12ms]]" {
		t.Errorf("the core server does something itself at %s", got)
	}

	// A step that ends a little late is inside of the one around it, and the sum stays.
	late := step("etcd", 2, 3)
	late.Took += time.Microsecond / 2
	each, outside = Of([]trace.Step{step("core", 1, 4), late}, 6*time.Millisecond)
	if each[1].Level != 1 || each[0].Itself != time.Millisecond ||
		outside.Itself != 2*time.Millisecond {
		t.Errorf("the steps are %+v, and outside is %+v", each, outside)
	}
	if _, outside = Of(nil, time.Second); outside.Itself != time.Second {
		t.Errorf("without steps, outside is %+v", outside)
	}
}
