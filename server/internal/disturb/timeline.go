package disturb

import (
	"fmt"
	"time"
)

// A Timeline is what happened in a run, around the disturbance.
type Timeline struct {
	Steps []Step `json:"steps,omitempty"`
	// Earlier and Later are how many steps are left out.
	Earlier int `json:"earlier,omitempty"`
	Later   int `json:"later,omitempty"`
}

// A Step is a request, or what else happened to the controller.
type Step struct {
	Seconds float64 `json:"seconds"` // since the run began
	// Disturbed is true of the request at which the disturbance happened.
	Disturbed bool   `json:"disturbed,omitempty"`
	Request   Target `json:"request,omitzero"`
	// Event is what happened if it is no request.
	Event string `json:"event,omitempty"`
	// Saw is what the client learnt of the request, if it was not success.
	Saw string `json:"saw,omitempty"`
}

// A timeline has at most this many steps before and after the disturbance.
const maxBefore, maxAfter = 40, 120

// note is something that happened to the controller. Index is the number of requests before it.
type note struct {
	when  time.Time
	index int
	text  string
}

// noteLocked notes that something happened to the controller.
func (s *Session) noteLocked(format string, args ...any) {
	s.notes = append(s.notes, note{time.Now(), len(s.trace), fmt.Sprintf(format, args...)})
}

func (s *Session) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(format, args...)
}

// saw records what the client learnt of a request.
func (s *Session) saw(index int, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace[index].saw = fmt.Sprintf(format, args...)
}

// timeline returns what happened in a run since the first controller started.
func (o *Outcome) timeline() Timeline {
	if len(o.notes) == 0 {
		return Timeline{}
	}
	var all []Step
	center := 0
	add := func(when time.Time, s Step) {
		s.Seconds = float64(when.Sub(o.begin).Milliseconds()) / 1000
		all = append(all, s)
	}
	notes, first := o.notes, o.notes[0].index
	for i, e := range o.trace[first:] {
		for len(notes) > 0 && notes[0].index <= first+i {
			add(notes[0].when, Step{Event: notes[0].text})
			notes = notes[1:]
		}
		s := Step{Request: e.Op.target(), Saw: e.saw, Disturbed: e.disturbed}
		s.Request.By, s.Request.Caller = e.By.String(), e.Caller
		if e.disturbed {
			center = len(all)
		}
		add(e.when, s)
	}
	for _, n := range notes {
		add(n.when, Step{Event: n.text})
	}
	from, to := max(0, center-maxBefore), min(len(all), center+maxAfter)
	return Timeline{Steps: all[from:to], Earlier: from, Later: len(all) - to}
}
