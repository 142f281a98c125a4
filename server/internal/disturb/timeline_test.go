package disturb

import (
	"strings"
	"testing"
	"time"
)

// A timeline has what is near the disturbance, and says how much else there is.
func TestTimeline(t *testing.T) {
	t.Parallel()
	s := NewSession(Disturbance{Kind: CrashAfter, At: Op{
		Verb: "create", Resource: namespaces, Name: "copy", Nth: maxBefore + 2,
	}})
	begin := time.Now()
	s.record(Entry{Op: Op{Verb: "create", Resource: namespaces, Name: "earlier"}, By: Others})
	s.note("A controller starts.")
	for range maxBefore + maxAfter + 5 {
		_, index := s.record(Entry{Op: Op{Verb: "create", Resource: namespaces, Name: "copy"}})
		if index == maxBefore+2 {
			s.saw(index, "no answer")
			s.note("The controller crashes.")
		}
	}
	o := &Outcome{begin: begin, trace: s.trace, notes: s.notes}
	got := o.timeline()
	if got.Earlier != 2 || got.Later != 5 || len(got.Steps) != maxBefore+maxAfter {
		t.Fatalf("%d earlier, %d steps, %d later", got.Earlier, len(got.Steps), got.Later)
	}
	at, next := got.Steps[maxBefore], got.Steps[maxBefore+1]
	if !at.Disturbed || at.Saw != "no answer" || at.Request.By != "controller" ||
		!strings.Contains(at.Request.String(), "create namespaces copy") {
		t.Errorf("the disturbance is %+v", at)
	}
	if next.Event != "The controller crashes." {
		t.Errorf("what follows is %+v", next)
	}
}
