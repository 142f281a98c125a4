package disturb

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Lesson is what two undisturbed runs have in common.
type Lesson struct {
	trace         []Entry
	common        map[Op]bool // the writes that both runs have, and that succeeded
	state         State
	mask          masked
	deleted       map[string]int
	used          map[schema.GroupResource]bool
	limit         int
	took          time.Duration
	all, precious []schema.GroupVersionResource
}

// Learn compares two undisturbed runs. It returns an error if one of them went wrong.
func Learn(one, other *Outcome) (*Lesson, error) {
	for _, o := range []*Outcome{one, other} {
		if len(o.Problems) > 0 {
			return nil, errors.New("the case does not even work undisturbed: " +
				strings.Join(o.Problems, "\n"))
		}
	}
	l := &Lesson{
		trace: one.trace, state: one.state, mask: maskOf(one.state, other.state),
		deleted: map[string]int{}, used: map[schema.GroupResource]bool{}, common: map[Op]bool{},
		took: max(one.took, other.took), all: one.all, precious: one.precious,
		// A disturbed controller may have to do everything again, and several times.
		limit: 5*max(one.requests, other.requests) + 200,
	}
	succeeded := map[Op]bool{}
	for _, e := range one.trace {
		succeeded[e.Op] = !e.Failed
	}
	writes := 0
	for _, e := range other.trace {
		if e.Op.writes() && succeeded[e.Op] && !e.Failed {
			l.common[e.Op] = true
			if !e.User {
				writes++
			}
		}
	}
	if writes == 0 {
		return nil, errors.New("the controller wrote nothing, so there is nothing to disturb")
	}
	for _, o := range []*Outcome{one, other} {
		for k, n := range o.deleted {
			l.deleted[k] = max(l.deleted[k], n)
		}
		for k := range o.state {
			resource, _, _ := strings.Cut(k, " ")
			l.used[schema.ParseGroupResource(resource)] = true
		}
	}
	return l, nil
}

// compare returns how the end of a run differs from that of an undisturbed one.
func (l *Lesson) compare(o *Outcome) []string {
	var problems []string
	if d := differences(l.state, o.state, l.mask); len(d) > 0 {
		problems = append(problems,
			"The end state is another one (- undisturbed, + disturbed):\n"+indent(d))
	}
	for _, k := range slices.Sorted(maps.Keys(o.deleted)) {
		if n, usual := o.deleted[k], l.deleted[k]; n > usual {
			problems = append(problems, fmt.Sprintf(
				"%s was deleted %s, in an undisturbed run %s.", k, times(n), times(usual)))
		}
	}
	return problems
}

// concerned returns the keys of the objects that [Lesson.compare] finds something about.
func (l *Lesson) concerned(o *Outcome) []string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(union(l.state, o.state))) {
		before, inBefore := l.state[k]
		after, inAfter := o.state[k]
		if !l.mask[[2]string{k, ""}] &&
			(inBefore != inAfter || changes(k, before, after, l.mask) != nil) {
			all = append(all, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(o.deleted)) {
		if o.deleted[k] > l.deleted[k] && !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	return all
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

func indent(lines []string) string { return "  " + strings.Join(lines, "\n  ") }

// A Finding is a disturbance that the controller did not get over.
type Finding struct {
	Disturbance Disturbance
	Problems    []string
	// Once is true if a second try had no problem: then chance, or the load of the machine, has a part
	// in it.
	Once bool
}

// Judge returns what is wrong with the outcome of a disturbed run, or nil. It calls again for a
// second try of what is wrong. If that has an error, Judge returns both.
func (l *Lesson) Judge(d Disturbance, o *Outcome, again func() (*Outcome, error)) (
	*Finding, error,
) {
	problems := l.problems(o)
	if len(problems) == 0 {
		return nil, nil
	}
	found := &Finding{Disturbance: d, Problems: problems}
	second, err := again()
	if err == nil {
		found.Once = len(l.problems(second)) == 0
	}
	return found, err
}

func (l *Lesson) problems(o *Outcome) []string {
	if o.endless { // then the end is only that of the run
		return o.Problems
	}
	return slices.Concat(o.Problems, l.compare(o), o.story)
}

// String returns the finding as a report.
func (f *Finding) String() string {
	var b strings.Builder
	d := f.Disturbance
	fmt.Fprintf(&b, "%s\n\n%s\n", d.Name(), d.What())
	fmt.Fprintf(&b, "  %s: %s%s\n", d.of(), d.At, d.Position)
	if d.Caller != "" {
		fmt.Fprintf(&b, "  at: %s\n", d.Caller)
	}
	if f.Once {
		b.WriteString("  A second try went well: it depends on chance, or on the load of the machine.\n")
	}
	for _, p := range f.Problems {
		fmt.Fprintf(&b, "\n%s\n", p)
	}
	return b.String()
}
