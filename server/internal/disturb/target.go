package disturb

import "fmt"

// Target is what a disturbance is about, as fields of a report: a write, an object, or the events
// of a resource.
type Target struct {
	// By says who wrote, if it is a write, and Verb how.
	By          string `json:"by,omitempty"`
	Verb        string `json:"verb,omitempty"`
	Resource    string `json:"resource"` // such as "deployments.apps"
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	// Act is that of the user, and Occurrence counts the equal requests of an act.
	Act        int `json:"act,omitempty"`
	Occurrence int `json:"occurrence,omitempty"`
	// Position is which of the controller's writes it is, from 1, and Of is how many there are.
	Position int `json:"position,omitempty"`
	Of       int `json:"of,omitempty"`
	// Caller is the line in the code. It is unknown for programs.
	Caller Caller `json:"caller,omitzero"`
}

// Target returns what a disturbance is about.
func (d Disturbance) Target() Target {
	t := d.At.target()
	t.Position, t.Of, t.Caller = d.Position.Nth, d.Position.Of, d.Caller
	if t.Verb != "" {
		t.By = d.Position.By.String()
	}
	return t
}

// Target returns the write of the controller at which it crashes.
func (s Second) Target() Target {
	t := s.At.target()
	t.Caller, t.By = s.Caller, Controller.String()
	return t
}

func (o Op) target() Target {
	return Target{
		Verb: o.Verb, Resource: o.Resource.GroupResource().String(), Subresource: o.Subresource,
		Namespace: o.Namespace, Name: o.Name, Act: o.Act, Occurrence: o.Nth,
	}
}

// String returns text such as "update ponds.example.com/status default/park in act 3 (occurrence
// 2)".
func (t Target) String() string {
	text := join("/", t.Resource, t.Subresource)
	text = join(" ", t.Verb, text, join("/", t.Namespace, t.Name))
	if t.Act > 1 {
		text += fmt.Sprintf(" in act %d", t.Act)
	}
	if t.Occurrence > 1 {
		text += fmt.Sprintf(" (occurrence %d)", t.Occurrence)
	}
	return text
}

// Which says which of the writes it is, or by whom.
func (t Target) Which() string {
	switch {
	case t.By == User.String():
		return ", by the user"
	case t.Position > 0:
		return fmt.Sprintf(", %d of %d", t.Position, t.Of)
	}
	return ""
}

// Position says which of the writes a write is.
type Position struct {
	By Actor
	// Nth counts the writes of the controller from 1, and Of is how many there are.
	Nth, Of int
}
