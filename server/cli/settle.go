package cli

import (
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// newHeadroom returns memory that is never touched, so that it takes none of the machine's. The
// garbage collector lets the heap grow by as much as is in use, and this memory counts. So it runs
// less often while the heap is small. But a heap that grows is new to the system, page by page, and
// on some virtual machines that takes 13 µs for 4 KiB: there, creates take 10 to 30% more CPU time
// with 128 MiB than with 40.
func newHeadroom() []byte { return make([]byte, headroom) }

const headroom = 48 << 20

// settle returns memory that only the start needed, because a sandbox is idle most of the time.
func settle() {
	debug.FreeOSMemory()
	pageOutExecutable()
}

// After a burst of requests, most of the heap is garbage or free, but without more requests nothing
// collects and returns it. So every lookInterval the program looks at its heap, and returns what it
// can once if the burst is over: if less than quiet was allocated since the last look, and the heap
// has grown by more than grown since memory was last returned. A collection takes some
// milliseconds for each 10 MiB that are in use.
const (
	lookInterval = 5 * time.Second
	quiet        = 8 << 20
	grown        = 24 << 20
)

// heap is the size of the heap at some time, in bytes.
type heap struct {
	allocated uint64 // since the start of the program
	held      uint64 // from the system, in use or not
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	h := heap{allocated: samples[0].Value.Uint64()}
	for _, s := range samples[1:] {
		h.held += s.Value.Uint64()
	}
	return h
}

// settler decides when to return memory. Its zero value is ready to use.
type settler struct {
	last    heap   // at the last look
	settled uint64 // held after memory was last returned, or a later minimum
}

// due reports whether memory should be returned now.
func (s *settler) due(now heap) bool {
	isQuiet := now.allocated-s.last.allocated < quiet
	s.last = now
	if s.settled == 0 || now.held < s.settled {
		s.settled = now.held
	}
	return isQuiet && now.held > s.settled+grown
}

// look returns memory to the system if that is due.
func (s *settler) look() {
	if s.due(readHeap()) {
		debug.FreeOSMemory()
		s.settled = readHeap().held
	}
}
