package cli

import (
	"runtime"
	"testing"
)

// Memory is returned once after a burst, and not during it.
func TestSettleAfterBurst(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	var s settler
	for i, look := range []struct {
		allocated, held uint64
		due             bool
	}{
		{100 * mib, 30 * mib, false}, // the first look
		{101 * mib, 31 * mib, false},
		{500 * mib, 300 * mib, false}, // the burst
		{900 * mib, 400 * mib, false},
		{901 * mib, 400 * mib, true}, // it is over
	} {
		if due := s.due(heap{look.allocated, look.held}); due != look.due {
			t.Errorf("look %d: due is %t, want %t", i, due, look.due)
		}
	}
	// What remains is in use, so there is nothing to return.
	s.settled = 380 * mib
	if s.due(heap{902 * mib, 381 * mib}) {
		t.Error("due again without another burst")
	}
	// Objects were deleted, and then there is another burst, smaller than the memory held before.
	if s.due(heap{903 * mib, 40 * mib}) {
		t.Error("due although the heap is smaller")
	}
	if s.due(heap{999 * mib, 90 * mib}) {
		t.Error("due during the second burst")
	}
	if !s.due(heap{1000 * mib, 90 * mib}) {
		t.Error("not due after the second burst")
	}
}

// The names of the runtime's metrics are right.
func TestReadHeap(t *testing.T) {
	t.Parallel()
	before := readHeap()
	block := make([]byte, 64<<20)
	after := readHeap()
	runtime.KeepAlive(block)
	if after.allocated-before.allocated < 64<<20 {
		t.Errorf("allocated: %d, then %d bytes", before.allocated, after.allocated)
	}
	if after.held < 64<<20 {
		t.Errorf("held: %d bytes", after.held)
	}
}
