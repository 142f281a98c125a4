// Package nesting finds out which steps of a trace took place during others, and when each did
// something itself.
package nesting

import (
	"time"

	"github.com/kinproc/kinproc/chain/trace"
)

// Times are those of a step, or of a request, in which no step inside of it took place.
type Times struct {
	// Level is the number of steps during which the step took place.
	Level int `json:"level"`
	// Itself is the sum of Gaps, in nanoseconds.
	Itself time.Duration `json:"itself"`
	// Gaps are from when to when that was, in nanoseconds since the request was received.
	Gaps [][2]time.Duration `json:"gaps"`
}

// clockSkew is by how much a step may seem to end after the one around it, since the clock is read
// for one after the other.
const clockSkew = time.Microsecond

// span is a step that may go on while further ones begin.
type span struct {
	times *Times
	end   time.Duration
	until time.Duration // up to where it has gaps, and steps inside of it
}

// to adds the gap that ends at a time.
func (s *span) to(at time.Duration) {
	if at = min(at, s.end); at > s.until {
		s.times.Gaps = append(s.times.Gaps, [2]time.Duration{s.until, at})
		s.times.Itself += at - s.until
	}
}

// Of returns the times of each step of a request, and those outside of all steps. Steps are in the
// order in which they began. All times together are what the request took.
func Of(steps []trace.Step, took time.Duration) (each []Times, outside Times) {
	for _, step := range steps {
		took = max(took, step.Start+step.Took)
	}
	outside.Gaps = [][2]time.Duration{}
	each = make([]Times, len(steps))
	open := []*span{{times: &outside, end: took}}
	end := func() {
		last := len(open) - 1
		open[last].to(open[last].end)
		open = open[:last]
	}
	for i, step := range steps {
		ends := step.Start + step.Took
		for len(open) > 1 && (ends > open[len(open)-1].end+clockSkew ||
			step.Start >= open[len(open)-1].end) {
			end()
		}
		around := open[len(open)-1]
		around.to(step.Start)
		around.until = max(around.until, ends)
		each[i] = Times{Level: len(open) - 1, Gaps: [][2]time.Duration{}}
		open = append(open, &span{times: &each[i], end: ends, until: step.Start})
	}
	for len(open) > 0 {
		end()
	}
	return each, outside
}
