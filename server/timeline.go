package server

import "time"

// Phase is a part of the start.
type Phase struct {
	Name string
	// Start is when the phase began, after the start itself.
	Start time.Duration
	// Took is how long it lasted.
	Took time.Duration
}

// timeline notes the phases of a start, which follow each other.
type timeline struct {
	began  time.Time
	phases []Phase
}

// phase begins a phase and ends the one before. An empty name only ends it.
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

// Timeline says where the time of the start went.
func (s *Server) Timeline() []Phase { return s.timeline.phases }
