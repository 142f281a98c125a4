package disturb

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kinproc/kinproc/chain/history"
)

// A Finding is a disturbance from which the controller did not recover.
type Finding struct {
	Disturbance Disturbance `json:"-"`
	Problems    []Problem   `json:"problems"`
	// Again says what a second try found.
	Again Again `json:"secondTry"`
	// Needs are the acts and the manifests that the finding needs, if others have been left out.
	Needs []string `json:"needs,omitempty"`
	// Versions are those of the objects that the problems are about, if they changed.
	Versions []Versions `json:"versions,omitempty"`
	Timeline Timeline   `json:"timeline,omitzero"`

	compared []string // the problems, without what differs each time
}

// A Problem is what is wrong with a run.
type Problem struct {
	Kind ProblemKind `json:"kind"`
	// Message says what is wrong if the objects do not.
	Message string       `json:"message,omitempty"`
	Objects []Difference `json:"objects,omitempty"`
}

// ProblemKind is a kind of problem.
type ProblemKind string

// The kinds of problems.
const (
	StateDiffers ProblemKind = "state"       // at the end
	Miscounted   ProblemKind = "counts"      // created or deleted too often, or not often enough
	Overwritten  ProblemKind = "overwritten" // what somebody else had set
	NotAlways    ProblemKind = "always"      // what is to be always true was not
	Busy         ProblemKind = "busy"        // the system does not become idle
	Failed       ProblemKind = "error"       // of the controller, or of the user's steps
)

// Object names an object.
type Object struct {
	Resource  string `json:"resource"` // such as "deployments.apps"
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"` // see canonical
}

// objectOf returns the object that has a key.
func objectOf(key string) Object {
	resource, name, _ := strings.Cut(key, " ")
	o := Object{Resource: resource, Name: name}
	if namespace, name, namespaced := strings.Cut(name, "/"); namespaced {
		o.Namespace, o.Name = namespace, name
	}
	return o
}

// String returns the key of the object in a state.
func (o Object) String() string { return o.Resource + " " + join("/", o.Namespace, o.Name) }

// A Difference is how an object differs from that of an undisturbed run.
type Difference struct {
	Object
	// In is the run whose state has the object, if the other's has not.
	In Run `json:"in,omitempty"`
	// Consequences are the objects that lack, or are too many, because this one does or is.
	Consequences []Object `json:"consequences,omitempty"`
	// Fields are those that differ, or that somebody else had set.
	Fields []Field `json:"fields,omitempty"`
	// Created and Deleted are how often.
	Created *Times `json:"created,omitempty"`
	Deleted *Times `json:"deleted,omitempty"`
}

// Run says which of two runs has something.
type Run string

// The runs.
const (
	InBoth        Run = ""
	InUndisturbed Run = "undisturbed"
	InDisturbed   Run = "disturbed"
)

// A Field is a field of an object with its values, which are nil if there is none.
type Field struct {
	Path        string  `json:"path"`
	Undisturbed *string `json:"undisturbed,omitempty"`
	Disturbed   *string `json:"disturbed,omitempty"`
}

// Times says how often something happened.
type Times struct {
	Undisturbed int `json:"undisturbed"`
	Disturbed   int `json:"disturbed"`
}

// Versions are the last versions of an object.
type Versions struct {
	Object
	// Earlier is whether there are earlier ones.
	Earlier  bool              `json:"earlier,omitempty"`
	Versions []history.Version `json:"versions"`
}

// Again is what a second try of a disturbance found.
type Again string

// What a second try can find.
const (
	NotRepeated Again = "not repeated"     // the second try was interrupted
	Same        Again = "same problems"    // each time
	Another     Again = "other problems"   // chance, or the load of the machine, has a part in it
	Nothing     Again = "no problem found" // as with Another
)

// Compare sets what a second try, whose finding may be nil, says about the first one.
func (f *Finding) Compare(second *Finding) {
	switch {
	case second == nil:
		f.Again = Nothing
	case f.SameAs(second):
		f.Again, f.Timeline = Same, second.Timeline // which may be more detailed
	default:
		f.Again = Another
	}
}

// SameAs reports whether two findings have the same problems.
func (f *Finding) SameAs(other *Finding) bool { return slices.Equal(f.compared, other.compared) }

// String returns the finding as a report.
func (f *Finding) String() string {
	var b strings.Builder
	d := f.Disturbance
	fmt.Fprintf(&b, "%s\n\n%s\n", d.Name(), d.What())
	at := d.Target()
	fmt.Fprintf(&b, "  %s: %s%s\n", d.of(), at, at.Which())
	if d.Caller != (Caller{}) {
		fmt.Fprintf(&b, "  at: %s\n", d.Caller)
	}
	fmt.Fprintf(&b, "  %s\n", f.Again.Sentence())
	if len(f.Needs) > 0 {
		fmt.Fprintf(&b, "  It needs only %s.\n", strings.Join(f.Needs, ", "))
	}
	for _, p := range f.Problems {
		fmt.Fprintf(&b, "\n%s\n", p)
	}
	for _, v := range f.Versions {
		fmt.Fprintf(&b, "\n%s\n", v)
	}
	return b.String()
}

// String returns the problem as a text.
func (p Problem) String() string {
	switch {
	case p.Kind == StateDiffers:
		text := "The final state differs (- undisturbed, + disturbed):"
		for _, d := range p.Objects {
			text += d.lines()
		}
		return text
	case p.Kind == Miscounted:
		d := p.Objects[0]
		how, n := "created", d.Created
		if n == nil {
			how, n = "deleted", d.Deleted
		}
		return fmt.Sprintf("%s was %s %s (undisturbed: %s).", d.Object, how, times(n.Disturbed),
			times(n.Undisturbed))
	}
	return p.Message
}

// lines returns a line for the object, and one for each value of a field.
func (d Difference) lines() string {
	text := "\n    " + d.Object.String()
	switch d.In {
	case InUndisturbed:
		text = "\n  - " + d.Object.String()
	case InDisturbed:
		text = "\n  + " + d.Object.String()
	}
	switch n := len(d.Consequences); n {
	case 0:
	case 1:
		text += ", and an object that follows from it"
	default:
		text += fmt.Sprintf(", and %d objects that follow from it", n)
	}
	for _, f := range d.Fields {
		if f.Undisturbed != nil {
			text += fmt.Sprintf("\n  -   %s: %s", f.Path, *f.Undisturbed)
		}
		if f.Disturbed != nil {
			text += fmt.Sprintf("\n  +   %s: %s", f.Path, *f.Disturbed)
		}
	}
	return text
}

// String returns the versions with what changed, some of them if there are many changes.
func (v Versions) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The history of %s:", v.Object)
	if v.Earlier {
		b.WriteString("\n  … earlier versions")
	}
	for _, v := range v.Versions {
		b.WriteString("\n  " + v.String())
		for _, line := range v.Summary(maxChanges) {
			b.WriteString("\n    " + line)
		}
	}
	return b.String()
}

// Sentence returns what a report says of a second try.
func (a Again) Sentence() string {
	switch a {
	case Same:
		return "A second try had the same problems."
	case Another:
		return "A second try had other problems: they depend on timing, or on the load of the machine."
	case Nothing:
		return "A second try succeeded: the finding depends on timing, or on the load of the machine."
	}
	return "The second try was interrupted."
}

func times(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
