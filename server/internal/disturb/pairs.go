package disturb

import "slices"

// maxSeconds is how many writes of a recovery are disturbed at most.
const maxSeconds = 2

// Pairs returns the disturbances that begin with d, and go on with a crash during the recovery, as
// it was in the run of an outcome: at the first writes in the same act that the undisturbed runs do
// not have or, if there are none, at the first ones about the same object, its owner, what it owns,
// or what has the same owner.
func (b *Baseline) Pairs(d Disturbance, o *Outcome) []Disturbance {
	if !o.Fired || o.firedAt >= len(o.trace) || d.Then.Kind != None || d.At.Name == "" {
		return nil
	}
	switch d.Kind {
	case Coalesced, Delayed:
		return nil // they have no moment at which they are over
	}
	act := d.At.Act
	if d.Until != (Op{}) {
		act = d.Until.Act
	}
	var recovery, later []Entry
	for _, e := range o.trace[o.firedAt+1:] {
		if e.By != Controller || !e.Changed || e.Op.Act != act {
			continue
		}
		if !b.common[e.Op] {
			recovery = append(recovery, e)
		} else if b.related(d.At, e.Op, o) {
			later = append(later, e)
		}
	}
	if len(recovery) == 0 {
		recovery = later
	}
	var all []Disturbance
	for _, e := range recovery[:min(maxSeconds, len(recovery))] {
		for _, k := range []Kind{CrashAfter, CrashBefore} {
			d.Then = Second{k, e.Op, e.Caller}
			all = append(all, d)
		}
	}
	return all
}

// related reports whether two requests are about the same object, about what the object of the
// other owns, or about objects with the same owner.
func (b *Baseline) related(one, other Op, o *Outcome) bool {
	family := func(k string) []string {
		return slices.Concat([]string{k}, owners(o.state[k]), owners(b.state[k]))
	}
	others := family(other.key())
	return slices.ContainsFunc(family(one.key()), func(k string) bool {
		return slices.Contains(others, k)
	})
}
