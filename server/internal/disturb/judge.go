package disturb

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/server/internal/invariant"
)

// A Baseline is what two undisturbed runs have in common.
type Baseline struct {
	trace        []Entry
	common       map[Op]bool // the writes that both runs have, and that changed something
	state        State
	mu           sync.Mutex
	mask         masked          // another one after each lesson
	unsteady     map[string]bool // objects that only the first of two tries miscounted
	fewest, most counts          // how often objects were created and deleted
	made         map[string]bool // objects that the controller created
	used         map[schema.GroupResource]bool
	limit        int
	settle       time.Duration
	took         time.Duration
	all, counted []schema.GroupVersionResource
	always       *invariant.Set
	unserved     []string
}

// NewBaseline compares two undisturbed runs. It returns an error if one of them went wrong.
func NewBaseline(one, other *Outcome) (*Baseline, error) {
	for _, o := range []*Outcome{one, other} {
		if problems := slices.Concat(o.Problems, o.lasting); len(problems) > 0 {
			return nil, errors.New("the test fails even without a disturbance: " +
				strings.Join(append(texts(problems), o.warned()...), "\n"))
		}
	}
	b := &Baseline{
		trace: one.trace, state: one.state, mask: maskOf(one.state, other.state),
		fewest: one.counts.merge(other.counts, minimum), most: one.counts.merge(other.counts, maximum),
		used: map[schema.GroupResource]bool{}, common: map[Op]bool{}, made: map[string]bool{},
		unsteady: map[string]bool{},
		took:     max(one.took, other.took), settle: max(one.settle, other.settle), all: one.all,
		always: one.always, unserved: one.unserved,
		// A disturbed controller may have to do everything again, and several times.
		limit: 5*max(one.requests, other.requests) + 200,
	}
	changed := map[Op]bool{}
	for _, e := range one.trace {
		changed[e.Op] = e.Changed
	}
	writes := 0
	for _, e := range other.trace {
		if e.By == Others || !changed[e.Op] || !e.Changed {
			continue
		}
		b.common[e.Op] = true
		if e.By == Controller {
			writes++
		}
		if e.By == Controller && e.created {
			b.made[e.Op.key()] = true
		}
	}
	if writes == 0 {
		return nil, errors.New("the controller wrote nothing, so there is nothing to disturb")
	}
	for _, o := range []*Outcome{one, other} {
		for k := range o.state {
			b.used[resourceOf(k)] = true
		}
	}
	counted := map[schema.GroupResource]bool{}
	for k := range b.made {
		counted[resourceOf(k)] = true
	}
	for _, r := range b.all {
		if isPrecious(r.GroupResource()) || counted[r.GroupResource()] {
			b.counted = append(b.counted, r)
		}
	}
	return b, nil
}

// warned returns what may explain why a run went wrong.
func (o *Outcome) warned() []string {
	var all []string
	if len(o.unserved) > 0 {
		all = append(all,
			"The controller asked for what is not served: "+strings.Join(o.unserved, ", "))
	}
	if len(o.warnings) > 0 {
		all = append(all, "The Warning events:\n"+"  "+strings.Join(o.warnings, "\n  "))
	}
	return all
}

// Writes returns how many writes of the controller can be disturbed.
func (b *Baseline) Writes() int {
	n := 0
	for _, e := range b.trace {
		if e.By == Controller && b.common[e.Op] {
			n++
		}
	}
	return n
}

// Unserved returns the group versions that the controller has asked for and that are not served,
// such as "policy/v1beta1".
func (b *Baseline) Unserved() []string { return b.unserved }

// resourceOf returns the resource in the key of an object.
func resourceOf(key string) schema.GroupResource {
	resource, _, _ := strings.Cut(key, " ")
	return schema.ParseGroupResource(resource)
}

// Learn masks the fields that have a value of their own undisturbed and in each try of a
// disturbance: these are chance. So is how often the first of the two tries created or deleted an
// object, if the second one was right, and if this was so of another disturbance before.
func (b *Baseline) Learn(one, other *Outcome) {
	wrong, again := b.miscounted(one, false), b.miscounted(other, false)
	b.mu.Lock()
	defer b.mu.Unlock()
	mask := maps.Clone(b.mask)
	for k := range maskOf(one.state, other.state) {
		usual, exists := b.state[k[0]][k[1]]
		first, inOne := one.state[k[0]][k[1]]
		second, inOther := other.state[k[0]][k[1]]
		if exists && inOne && inOther && usual != first && usual != second {
			mask[k] = true
		}
	}
	b.mask = mask
	for _, k := range wrong {
		if slices.Contains(again, k) {
			continue
		}
		if b.unsteady[k] {
			one.byChance = append(one.byChance, k)
		}
		b.unsteady[k] = true
	}
}

// chance returns what is masked now, which does not change.
func (b *Baseline) chance() masked {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mask
}

// compare returns how the end of a run differs from that of an undisturbed one.
func (b *Baseline) compare(o *Outcome) []Problem {
	var problems []Problem
	if d := differences(b.state, o.state, b.chance()); len(d) > 0 {
		problems = append(problems, Problem{Kind: StateDiffers, Objects: d})
	}
	for _, k := range b.miscounted(o, false) {
		n, fewest, most := o.counts[k], b.fewest[k], b.most[k]
		d := Difference{Object: objectOf(k)}
		if n.deleted < fewest.deleted || n.deleted > most.deleted {
			d.Deleted = &Times{Undisturbed: most.deleted, Disturbed: n.deleted}
		} else {
			d.Created = &Times{Undisturbed: most.created, Disturbed: n.created}
		}
		problems = append(problems, Problem{Kind: Miscounted, Objects: []Difference{d}})
	}
	return append(problems, o.lasting...)
}

// overwritten returns the problem that a write has removed what somebody else had set in some kinds
// of metadata, such as a label.
func overwritten(write Op, lost []string) Problem {
	d := Difference{Object: objectOf(write.key())}
	set := "true"
	for _, kind := range lost {
		path := ".metadata." + kind + "s." + touched
		d.Fields = append(d.Fields, Field{Path: path, Undisturbed: &set})
	}
	return Problem{
		Kind: Overwritten, Objects: []Difference{d},
		Message: fmt.Sprintf("The write overwrote a change that the controller had not seen: it removed "+
			"the %s %s,\nwhich somebody else had set just before.",
			strings.Join(lost, " "+touched+" and the "), touched),
	}
}

func texts(problems []Problem) []string {
	var all []string
	for _, p := range problems {
		all = append(all, p.String())
	}
	return all
}

// miscounted returns the keys of the objects that were created or deleted more often than
// undisturbed. It also returns those that were so less often, unless only what cannot become right
// any more is asked for, or the controller may have missed what was to be done.
func (b *Baseline) miscounted(o *Outcome, lasting bool) []string {
	var all []string
	mask := b.chance()
	for _, k := range slices.Sorted(maps.Keys(union(o.counts, b.most))) {
		precious := isPrecious(resourceOf(k))
		_, before := b.state[k]
		_, after := o.state[k]
		if !precious && !b.made[k] || mask[[2]string{k, ""}] || slices.Contains(o.byChance, k) {
			continue
		}
		n, fewest, most := o.counts[k], b.fewest[k], b.most[k]
		// What lacks at the end lacks in the state, too.
		less := !lasting && !o.kind.hides() && before == after
		if n.deleted > most.deleted || precious && less && n.deleted < fewest.deleted ||
			b.made[k] && (n.created > most.created || less && n.created < fewest.created) {
			all = append(all, k)
		}
	}
	return all
}

// final reports whether the system, which is idle, need not be watched any longer: it is as it
// should be, or will never be.
func (b *Baseline) final(o *Outcome) bool {
	if len(o.lasting) > 0 || len(b.miscounted(o, true)) > 0 {
		return true
	}
	for k, fields := range o.state {
		usual, exists := b.state[k]
		_, terminates := fields[terminating]
		if _, may := usual[terminating]; exists && terminates && !may {
			return true
		}
	}
	return len(b.compare(o)) == 0
}

// terminating is a field of objects that are being deleted, which nobody can undo.
const terminating = ".metadata.deletionTimestamp"

// Judge returns what is wrong with the outcome of a disturbed run, or nil.
func (b *Baseline) Judge(d Disturbance, o *Outcome) *Finding {
	f := &Finding{Disturbance: d, Problems: o.Problems, Again: NotRepeated}
	for _, p := range texts(o.Problems) {
		first, _, _ := strings.Cut(p, "\n")
		f.compared = append(f.compared, numbers.ReplaceAllString(first, "*"))
	}
	if !o.endless { // otherwise the end is only that of the run
		end := b.compare(o)
		f.compared = append(f.compared, texts(end)...)
		f.Problems, f.Versions = slices.Concat(f.Problems, end), o.versions
	} else {
		f.Problems = slices.Concat(f.Problems, o.lasting)
	}
	if len(f.Problems) == 0 {
		return nil
	}
	f.Timeline = o.timeline()
	return f
}

// numbers are what differs in a message, such as ports and times.
var numbers = regexp.MustCompile(`[0-9]+`)
