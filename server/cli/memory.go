package cli

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// newHeadroom returns memory that is never touched, so that it takes none of the machine's. The
// garbage collector lets the heap grow by as much as is in use, and this memory counts. So it runs
// less often while the heap is small. More would save few collections, but a page that is new to
// the process can cost 13 µs on a virtual machine.
func newHeadroom() []byte { return make([]byte, 48<<20) }

// returnMemory collects garbage and returns the free memory to the machine each time that the
// process comes to rest after work, until ctx is done. By itself Go keeps as much as the heap may
// grow into, which after a burst of requests can be most of what the process has.
func returnMemory(ctx context.Context) {
	ticker := time.NewTicker(restPeriod)
	defer ticker.Stop()
	heap := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	var w work
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		metrics.Read(heap)
		if w.rests(heap[0].Value.Uint64(), heap[1].Value.Uint64()) {
			debug.FreeOSMemory()
		}
	}
}

const (
	// restPeriod is how long a process must rest.
	restPeriod = 10 * time.Second
	// restBytes is what a process at rest allocates at most in a period. A sandbox that nobody uses
	// allocates less, one that renews the leases of thousands of nodes more.
	restBytes = 16 << 20
	// workBytes is what must have been allocated since memory was last returned, and as much as is
	// live: after that, Go collects garbage too.
	workBytes = 256 << 20
)

// work is what a process has allocated, in bytes since its start.
type work struct {
	returned uint64 // when memory was last returned
	before   uint64 // a period ago
}

// rests reports at the end of a period whether the process has come to rest after work, if it has
// allocated so much by now, and so much was live after the last collection. Then memory counts as
// returned.
func (w *work) rests(allocated, live uint64) bool {
	rests := allocated-w.before < restBytes && allocated-w.returned >= max(workBytes, live)
	w.before = allocated
	if rests {
		w.returned = allocated
	}
	return rests
}
