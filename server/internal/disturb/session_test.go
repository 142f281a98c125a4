package disturb

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A controller whose pauses are longer than the time to settle is refused, with a longer time.
func TestStayIdle(t *testing.T) {
	t.Parallel()
	for pause, want := range map[time.Duration]string{
		90 * time.Second: "idle for 1m30s (create namespaces copy (occurrence 2)): use a longer time to settle, such as --settle 2m16s",
		time.Hour:        "",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := NewSession(Disturbance{})
			change := func() {
				_, index := s.record(Entry{Op: Op{Verb: "create", Resource: namespaces, Name: "copy"}, By: Controller})
				s.changed(index, true, "")
			}
			change()
			for i := range 3 { // the first one counts
				later := time.AfterFunc(pause+time.Duration(i)*time.Millisecond, change)
				defer later.Stop()
			}
			time.Sleep(time.Minute) // the system seems to be idle
			err := s.stayIdle(t.Context(), 2*time.Minute)
			switch {
			case want == "" && err != nil:
				t.Errorf("a pause of %v: %v, want no error", pause, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("a pause of %v: %v, want %q", pause, err, want)
			}
		})
	}
}

// Pauses in the work count, but not the time until the controller begins or after it has ended.
func TestLongestPause(t *testing.T) {
	t.Parallel()
	s := NewSession(Disturbance{})
	s.Settle = 2 * time.Second
	s.current = &instance{}
	work := func(pause int) {
		for range pause {
			s.turn()
		}
		s.last = s.last.Add(1)
	}
	work(15)
	s.turn()
	s.current.requests = true
	for _, turns := range []int{2, 3, 1, 30} {
		work(turns)
	}
	s.turn()
	if got, want := s.longestPause(), 300*time.Millisecond; got != want {
		t.Errorf("longest pause %v, want %v", got, want)
	}
}
