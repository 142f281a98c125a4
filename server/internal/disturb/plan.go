// Package disturb runs a controller and disturbs it, one thing at a time: it crashes the controller
// before or after a write, loses an answer, lets it see the past. Then it compares what has become
// of the objects with what becomes of them otherwise.
//
// A [Case] is run twice undisturbed. [Learn] returns what both runs have in common: the requests of
// the controller and of the user in order, and the end state. The disturbances follow from that.
// [Case.Run] runs the case with one of them, in a control plane of its own, and [Lesson.Judge] says
// what is wrong with the outcome.
//
// The requests are disturbed at the client, in a [net/http.RoundTripper] of its configuration, so
// that a controller may be a function of this process or a program behind a proxy.
package disturb

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of disturbance.
type Kind int

// The kinds of disturbance, those first that find most.
const (
	None Kind = iota
	// CrashAfter and CrashBefore end the controller after or before a write and start another one.
	CrashAfter
	CrashBefore
	// LostAnswer lets a write succeed, but the controller gets an error of the connection.
	LostAnswer
	// Missed keeps the controller down while the user changes something.
	Missed
	// StaleRestart is a crash after a write. The lists and watches from the server's cache first show
	// the next controller an earlier state. It sees the present when it has come to rest, or after
	// some time.
	StaleRestart
	// Conflict lets somebody else change an object just before the controller does.
	Conflict
	// Coalesced shows the controller what happens to an object only once the system is at rest, and
	// only the last of several changes.
	Coalesced
	// Delayed delays all events of a resource until the system is at rest.
	Delayed
)

// A Disturbance is one thing that is done to a controller.
type Disturbance struct {
	Kind Kind
	// At is the write of the controller, or for Missed of the user. For Coalesced it is an object, and
	// for Delayed a resource.
	At Op
	// Position says which of the writes At is, and Caller the line in the code.
	Position, Caller string
	// View is the write that the state for StaleRestart was before or after.
	View      Op
	ViewAfter bool
	// Only is true if StaleRestart shows the past of the resource of View alone.
	Only bool
}

// Name returns a name by which the disturbance is found again in another process.
func (d Disturbance) Name() string {
	switch d.Kind {
	case CrashAfter:
		return "crash-after-" + d.At.slug()
	case CrashBefore:
		return "crash-before-" + d.At.slug()
	case LostAnswer:
		return "lost-answer-to-" + d.At.slug()
	case Missed:
		return "missed-" + d.At.slug()
	case StaleRestart:
		if d.View == d.At {
			return "restart-unaware-of-" + d.At.slug()
		}
		if d.ViewAfter {
			name := "stale-restart-after-" + d.At.slug() + "-as-after-" + d.View.slug()
			if d.Only {
				name += "-only"
			}
			return name
		}
		return "stale-restart-after-" + d.At.slug() + "-as-before-" + d.View.slug()
	case Conflict:
		return "conflict-at-" + d.At.slug()
	case Coalesced:
		return "coalesced-" + d.At.slug()
	case Delayed:
		return "delayed-" + d.At.slug()
	}
	return "undisturbed"
}

// What says in a sentence what happened to the controller.
func (d Disturbance) What() string {
	switch d.Kind {
	case CrashAfter:
		return "The controller crashed right after a write, and another one started."
	case CrashBefore:
		return "The controller crashed right before a write, and another one started."
	case LostAnswer:
		return "The server carried out a write, but the connection broke before the answer."
	case Missed:
		return "The controller was not running while the user changed something."
	case StaleRestart:
		state := "before"
		if d.ViewAfter {
			state = "after"
		}
		whose := "The cache of the next one"
		if d.Only {
			whose = fmt.Sprintf("The next one's cache of %s", d.View.Resource.Resource)
		}
		return fmt.Sprintf("The controller crashed after a write. %s first had the state\n%s %s, "+
			"and later the present.", whose, state, d.View)
	case Conflict:
		return "Somebody else changed the object right before a write, so the server refused it."
	case Coalesced:
		return "The controller saw only the last of several changes of an object."
	case Delayed:
		return "The controller saw the events of a resource late."
	}
	return "Nothing happened to the controller."
}

// of returns what At is, in reports.
func (d Disturbance) of() string {
	switch d.Kind {
	case Coalesced:
		return "object"
	case Delayed:
		return "events"
	}
	return "write"
}

// Disturbances returns all that can be done to the case, the likeliest first. Within a kind the
// order is that of the requests or, with a seed, another one.
func (l *Lesson) Disturbances(seed uint64) []Disturbance {
	var all []Disturbance
	var users []Op
	wrote := false // the controller has written since the last write of the user
	older := -1    // the last but one of users after which the controller has written
	count, total := 0, 0
	for _, e := range l.trace {
		if e.Op.writes() && !e.User {
			total++
		}
	}
	for _, e := range l.trace {
		if !e.Op.writes() {
			continue
		}
		d := Disturbance{At: e.Op, Caller: e.Caller, Position: ", by the user"}
		if !e.User {
			count++
			d.Position = fmt.Sprintf(", %d of %d", count, total)
		}
		if !l.common[e.Op] {
			continue
		}
		add := func(k Kind) { d.Kind = k; all = append(all, d) }
		if e.User {
			if wrote {
				older = len(users) - 1
			}
			users, wrote = append(users, e.Op), false
			add(Missed)
			continue
		}
		wrote = true
		for _, k := range []Kind{CrashAfter, CrashBefore, LostAnswer} {
			add(k)
		}
		if e.precondition && (e.Op.Subresource == "" || e.Op.Subresource == "status") {
			add(Conflict)
		}
		d.View = d.At
		add(StaleRestart)
		if len(users) > 0 {
			d.View = users[len(users)-1]
			add(StaleRestart)
		}
		if older >= 0 {
			d.View, d.ViewAfter = users[older], true
			add(StaleRestart)
			d.Only = true
			add(StaleRestart)
		}
	}
	all = append(all, l.late()...)
	if seed != 0 {
		random := rand.New(rand.NewPCG(seed, 0))
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	slices.SortStableFunc(all, func(a, b Disturbance) int { return int(a.Kind - b.Kind) })
	return all
}

// late returns the disturbances of the watches: of each resource, and of each object that has
// changed more than once.
func (l *Lesson) late() []Disturbance {
	var all []Disturbance
	changes := map[Op]int{}
	watched := map[schema.GroupResource]bool{}
	for _, e := range l.trace {
		resource := e.Op.Resource.GroupResource()
		if e.Op.Verb == "watch" && !watched[resource] && !beside(resource.Group, resource.Resource) {
			watched[resource] = true
			all = append(all, Disturbance{Kind: Delayed, At: Op{Resource: e.Op.Resource}})
		}
	}
	for _, e := range l.trace {
		if !e.Op.writes() || !watched[e.Op.Resource.GroupResource()] {
			continue
		}
		object := e.Op.object()
		if strings.Contains(object.Name, "*") {
			continue // several objects
		}
		if changes[object]++; changes[object] == 2 {
			all = append(all, Disturbance{Kind: Coalesced, At: object})
		}
	}
	return all
}
