// Package disturb runs a controller and disturbs it, one thing at a time: it crashes the controller
// before or after a write, loses an answer, lets it see the past. Then it compares what has become
// of the objects with what becomes of them otherwise.
//
// A [Case] is run twice undisturbed. [NewBaseline] returns what both runs have in common: the
// requests of the controller and of the user in order, and the final state. The disturbances follow
// from that. [Case.Run] runs the case with one of them, in a control plane of its own, and
// [Baseline.Judge] says what is wrong with the outcome.
//
// The requests are disturbed at the client, in a [net/http.RoundTripper] of its configuration, so
// that a controller may be a function of this process or a program behind a proxy.
//
// The faults of package fault are in the server, and see other things: a conflict there is only an
// answer, while here the object has changed and its watches say so; a frozen view there is for each
// read, here for those that come from a cache; watches are held there as bytes, and here by event,
// so that events can be merged and counted. What both do, to lose an answer, is a line.
package disturb

import (
	"fmt"
	"maps"
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
	// LoseAnswer lets a write succeed, but the controller gets an error of the connection.
	LoseAnswer
	// Missed keeps the controller down while the user changes something.
	Missed
	// StaleRestart is a crash after a write. The lists and watches from the server's cache first
	// show the next controller an earlier state. It sees the present when it is idle, or after some
	// time.
	StaleRestart
	// Conflict lets somebody else change an object just before the controller does, and Overwrite
	// too, if the controller's write has no resource version.
	Conflict
	Overwrite
	// Coalesced shows the controller what happens to an object only once the system is idle, and
	// only the last of several changes.
	Coalesced
	// Delayed delays all events of a resource until the system is idle.
	Delayed
)

var kindNames = [...]string{
	None: "undisturbed", CrashAfter: "crash-after", CrashBefore: "crash-before",
	LoseAnswer: "lose-answer", Missed: "missed", StaleRestart: "stale-restart", Conflict: "conflict",
	Overwrite: "overwrite", Coalesced: "coalesced", Delayed: "delayed",
}

// String returns a name such as "crash-after".
func (k Kind) String() string { return kindNames[k] }

// Kinds returns the names of all kinds but None, and of pairs.
func Kinds() []string { return append(slices.Clone(kindNames[CrashAfter:]), PairName) }

// A Disturbance is one thing that is done to a controller.
type Disturbance struct {
	Kind Kind
	// At is the write of the controller, or for Missed of the user. For Coalesced it is an object,
	// and for Delayed a resource.
	At Op
	// Position says which of the writes At is, and Caller the line in the code.
	Position Position
	Caller   Caller
	// View is the write that the state for StaleRestart was before or after.
	View      Op
	ViewAfter bool
	// Only is true if StaleRestart shows the past of the resource of View alone. Without a verb,
	// View is that resource, and the past is the state before its last change, whoever made it.
	Only bool
	// Until is the write of the user in the next act that ends Missed. Default: At.
	Until Op
	// Act is the first of two acts during which events are held back for Coalesced. Default: events
	// are held back in each act by itself.
	Act int
	// Then is what happens during the recovery, if its kind is not None.
	Then Second
}

// Second is a crash of the controller before or after a write that follows a first disturbance.
type Second struct {
	Kind   Kind
	At     Op
	Caller Caller
}

// PairName is the name of the kind of a disturbance that a second one follows.
const PairName = "pair"

// KindName returns the name of the kind.
func (d Disturbance) KindName() string {
	if d.Then.Kind != None {
		return PairName
	}
	return d.Kind.String()
}

// hides reports whether a disturbance may keep the controller from ever seeing something.
func (k Kind) hides() bool { return k == Missed || k == Coalesced || k == Delayed || k == StaleRestart }

// Then is between the names of two disturbances in that of a pair.
const Then = "-then-"

// Name returns a name by which the disturbance is found again in another process.
func (d Disturbance) Name() string {
	if then := d.Then; then.Kind != None {
		d.Then = Second{}
		return d.Name() + Then + Disturbance{Kind: then.Kind, At: then.At}.Name()
	}
	switch d.Kind {
	case CrashAfter:
		return "crash-after-" + d.At.slug()
	case CrashBefore:
		return "crash-before-" + d.At.slug()
	case LoseAnswer:
		return "lose-answer-to-" + d.At.slug()
	case Missed:
		if d.Until != (Op{}) {
			return "missed-" + d.At.slug() + "-until-" + d.Until.slug()
		}
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
		if d.View.Verb == "" {
			return "stale-restart-after-" + d.At.slug() + "-as-before-last-change-of-" +
				d.View.Resource.Resource
		}
		name := "stale-restart-after-" + d.At.slug() + "-as-before-" + d.View.slug()
		if d.Only {
			name += "-only"
		}
		return name
	case Conflict:
		return "conflict-at-" + d.At.slug()
	case Overwrite:
		return "overwrite-at-" + d.At.slug()
	case Coalesced:
		if d.Act > 0 {
			return fmt.Sprintf("coalesced-%s-in-acts-%d-and-%d", d.At.slug(), d.Act, d.Act+1)
		}
		return "coalesced-" + d.At.slug()
	case Delayed:
		return "delayed-" + d.At.slug()
	}
	return "undisturbed"
}

// What says in a sentence what happened to the controller.
func (d Disturbance) What() string {
	if then := d.Then; then.Kind != None {
		d.Then = Second{}
		when := "after"
		if then.Kind == CrashBefore {
			when = "before"
		}
		text := fmt.Sprintf("%s\nWhile it recovered, it crashed right %s another write, and was restarted:\n%s",
			d.What(), when, then.At)
		if then.Caller != (Caller{}) {
			text += ", at " + then.Caller.String()
		}
		return text
	}
	switch d.Kind {
	case CrashAfter:
		return "The controller crashed right after a write, and was restarted."
	case CrashBefore:
		return "The controller crashed right before a write, and was restarted."
	case LoseAnswer:
		return "The server carried out a write, but the controller lost the answer."
	case Missed:
		if d.Until != (Op{}) {
			return fmt.Sprintf("The controller was not running from a change of the user until one in the "+
				"next act,\n%s.", d.Until)
		}
		return "The controller was not running while the user changed something."
	case StaleRestart:
		state := "before"
		if d.ViewAfter {
			state = "after"
		}
		cache := "cache"
		if d.Only {
			cache = "cache of " + d.View.Resource.Resource
		}
		view := d.View.String()
		if d.View.Verb == "" {
			view = "the last change of that resource"
		}
		return fmt.Sprintf("The controller crashed after a write, and was restarted. At first its %s "+
			"had the state\n%s %s.", cache, state, view)
	case Conflict:
		return "Somebody else changed the object right before a write, so the server refused it."
	case Overwrite:
		return "Somebody else changed the object right before a write that has no resource version."
	case Coalesced:
		if d.Act > 0 {
			return fmt.Sprintf("The controller saw nothing of an object in act %d, and at the end of act %d "+
				"only the\nlast of its changes.", d.Act, d.Act+1)
		}
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

// Disturbances returns all that can be done to the case: the first of each kind, the second of
// each, and so on. Within a kind the order is that of the requests or, with a seed, another one.
func (b *Baseline) Disturbances(seed uint64) []Disturbance {
	all := slices.Concat(b.atWrites(), b.lastChanges(), b.acrossActs(), b.late())
	if seed != 0 {
		random := rand.New(rand.NewPCG(seed, 0))
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	slices.SortStableFunc(all, func(x, y Disturbance) int { return int(x.Kind - y.Kind) })
	rank, next := map[Disturbance]int{}, map[Kind]int{}
	for _, d := range all {
		rank[d] = next[d.Kind]
		next[d.Kind]++
	}
	slices.SortStableFunc(all, func(x, y Disturbance) int { return rank[x] - rank[y] })
	return all
}

// atWrites returns what can be done at each write.
func (b *Baseline) atWrites() []Disturbance {
	var all []Disturbance
	var users []Op
	wrote := false // the controller has written since the last write of the user
	older := -1    // the last but one of users after which the controller has written
	watched, positions := b.watched(), b.positions()
	for _, e := range b.trace {
		if !b.common[e.Op] {
			continue
		}
		d := Disturbance{At: e.Op, Caller: e.Caller, Position: positions[e.Op]}
		if e.By == User {
			if wrote {
				older = len(users) - 1
			}
			users, wrote = append(users, e.Op), false
			d.Kind = Missed
			all = append(all, d)
			continue
		}
		add := func(k Kind) { d.Kind = k; all = append(all, d) }
		wrote = true
		for _, k := range []Kind{CrashAfter, CrashBefore, LoseAnswer} {
			add(k)
		}
		if e.Op.Subresource == "" || e.Op.Subresource == "status" {
			switch {
			case e.precondition:
				add(Conflict)
			case e.Op.Verb == "update", e.Op.Verb == "patch":
				add(Overwrite)
			}
		}
		d.View = d.At
		add(StaleRestart)
		stale := func(view Op, after, only bool) {
			d.View, d.ViewAfter, d.Only = view, after, only
			add(StaleRestart)
		}
		if len(users) > 0 {
			last := users[len(users)-1]
			stale(last, false, false)
			if len(watched) > 1 {
				stale(last, false, true)
			}
		}
		if older >= 0 {
			stale(users[older], true, false)
			stale(users[older], true, true)
		}
	}
	return all
}

// positions returns which of the writes each of them is.
func (b *Baseline) positions() map[Op]Position {
	all := map[Op]Position{}
	count, total := 0, b.Writes()
	for _, e := range b.trace {
		if !b.common[e.Op] {
			continue
		}
		if all[e.Op] = (Position{By: User}); e.By == Controller {
			count++
			all[e.Op] = Position{Nth: count, Of: total}
		}
	}
	return all
}

// lastChanges returns the restarts without the last change of a watched resource, whoever has made
// it: after the controller's writes between which somebody has changed the resource. The change may
// be recorded a little late, after the write that it has caused, so both writes count.
func (b *Baseline) lastChanges() []Disturbance {
	var all []Disturbance
	watched, positions := b.watched(), b.positions()
	var write *Entry                               // the last one, of the controller
	told := map[schema.GroupVersionResource]bool{} // which resources have a restart after it
	news := map[schema.GroupVersionResource]bool{} // which have changed since
	add := func(r schema.GroupVersionResource) {
		if told[r] {
			return
		}
		told[r] = true
		all = append(all, Disturbance{
			Kind: StaleRestart, At: write.Op, Caller: write.Caller, Position: positions[write.Op],
			View: Op{Resource: r}, Only: true,
		})
	}
	for i, e := range b.trace {
		switch r := e.Op.Resource; {
		case e.By == User && b.common[e.Op]:
			write = nil
			delete(news, r) // the restarts as before the user's write lack the last change
		case e.By == Controller && b.common[e.Op]:
			write = &b.trace[i]
			clear(told)
			for _, r := range sortedResources(news) {
				add(r)
			}
			if clear(news); watched[r.GroupResource()] {
				news[r] = true
			}
		case e.By == Others && watched[r.GroupResource()]:
			if news[r] = true; write != nil {
				add(r)
			}
		}
	}
	return all
}

func sortedResources(set map[schema.GroupVersionResource]bool) []schema.GroupVersionResource {
	return slices.SortedFunc(maps.Keys(set), func(a, b schema.GroupVersionResource) int {
		return strings.Compare(a.String(), b.String())
	})
}

// watched returns the resources that the controller watches.
func (b *Baseline) watched() map[schema.GroupResource]bool {
	all := map[schema.GroupResource]bool{}
	for _, e := range b.trace {
		r := e.Op.Resource.GroupResource()
		if e.By == Controller && e.Op.Verb == "watch" && !beside(r.Group, r.Resource) {
			all[r] = true
		}
	}
	return all
}

// acrossActs returns the disturbances that begin in an act of the user, and end in the next one.
func (b *Baseline) acrossActs() []Disturbance {
	var missed, coalesced []Disturbance
	watched := b.watched()
	first := map[int]Op{}
	written := map[Op]int{} // the last act in which the user has written an object
	for _, e := range b.trace {
		if e.By != User || !b.common[e.Op] {
			continue
		}
		act := e.Op.Act
		if _, ok := first[act]; !ok {
			first[act] = e.Op
		}
		if from, ok := first[act-1]; ok {
			d := Disturbance{Kind: Missed, At: from, Until: e.Op, Position: Position{By: User}}
			if last := len(missed) - 1; last >= 0 && missed[last].Until.Act == act {
				missed = missed[:last] // it lasts until the last write of the act
			}
			missed = append(missed, d)
		}
		object := e.Op.object()
		if before, ok := written[object]; ok && before == act-1 && watched[e.Op.Resource.GroupResource()] {
			coalesced = append(coalesced, Disturbance{Kind: Coalesced, At: object, Act: before})
		}
		written[object] = act
	}
	return slices.Concat(missed, coalesced)
}

// late returns the disturbances of the watches: of each resource, and of each object that has
// changed more than once.
func (b *Baseline) late() []Disturbance {
	var all []Disturbance
	changes := map[Op]int{}
	watched := b.watched()
	seen := map[schema.GroupResource]bool{}
	for _, e := range b.trace {
		resource := e.Op.Resource.GroupResource()
		if e.By == Controller && e.Op.Verb == "watch" && watched[resource] && !seen[resource] {
			seen[resource] = true
			all = append(all, Disturbance{Kind: Delayed, At: Op{Resource: e.Op.Resource}})
		}
	}
	for _, e := range b.trace {
		if !e.Changed || !watched[e.Op.Resource.GroupResource()] {
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
