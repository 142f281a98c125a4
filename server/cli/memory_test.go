package cli

import "testing"

// Memory is returned once after work, and not during it.
func TestWorkRests(t *testing.T) {
	t.Parallel()
	var w work
	var allocated uint64
	for i, period := range []struct {
		allocates uint64
		rests     bool
	}{
		{allocates: 100 << 20},             // a start
		{allocates: 1 << 20},               // rest, but after too little
		{allocates: 200 << 20},             // work
		{allocates: 20 << 20},              // less work
		{allocates: 1 << 20, rests: true},  // rest
		{allocates: 1 << 20},               // nothing new
		{allocates: 15 << 20},              // nearly work
		{allocates: 250 << 20},             // work
		{allocates: 15 << 20, rests: true}, // rest
	} {
		allocated += period.allocates
		if rests := w.rests(allocated); rests != period.rests {
			t.Errorf("period %d: rests: %v", i, rests)
		}
	}
}
