package server

import "time"

// Phase is a part of a start.
type Phase struct {
	Name string
	// Start is the time from the beginning of the start to the beginning of the phase.
	Start time.Duration
	// Took is how long the phase lasted.
	Took time.Duration
}

// timeline records the consecutive phases of a start.
type timeline struct {
	began  time.Time
	phases []Phase
}

// phase ends the current phase and, unless the name is empty, begins the next one.
func (t *timeline) phase(name string) {
	now := time.Now()
	if t.began.IsZero() {
		t.began = now
	}
	at := now.Sub(t.began)
	if n := len(t.phases); n > 0 && t.phases[n-1].Took == 0 {
		t.phases[n-1].Took = at - t.phases[n-1].Start
	}
	if name != "" {
		t.phases = append(t.phases, Phase{Name: name, Start: at})
	}
}

// Timeline returns the phases of the start in order.
func (s *Server) Timeline() []Phase {
	s.up("Timeline")
	return s.timeline.phases
}
