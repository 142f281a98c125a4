package servertest_test

import (
	"flag"
	"net"
	"net/url"
	"os"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

var cycles = flag.Int("cycles", 5,
	"how many control planes TestCyclesLeaveNothing starts and stops")

// The live heap may grow by kept from the first tenth of the cycles to the last, which is the noise
// of caches that the process has once, and by keptEach in each cycle: client-go keeps the transport
// of a client, and Go's HTTP/2 server keeps a connection for a while. A control plane takes far
// more.
const (
	kept     = 8 << 20
	keptEach = 256 << 10
)

// TestCyclesLeaveNothing starts, uses and stops many control planes one after the other, empty ones
// and forks of one snapshot. They leave no goroutines, no files, no ports and no memory.
func TestCyclesLeaveNothing(t *testing.T) { // not parallel: it inspects the whole process
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	origin := servertest.Run(t)
	if _, err := use(t.Context(), origin); err != nil {
		t.Fatal(err)
	}
	snapshot, err := origin.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := origin.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		from *server.Snapshot
	}{
		{"empty", nil},
		{"fork", snapshot},
	} {
		t.Run(test.name, func(t *testing.T) {
			cycle(t, test.from) // what a process makes once
			before, files := running(), openFiles()
			var heap uint64
			for n := range *cycles {
				cycle(t, test.from)
				if n == *cycles/10 {
					endsAll(t, before)
					heap = liveHeap()
				}
			}
			endsAll(t, before)
			if now := liveHeap(); now > heap+kept+uint64(*cycles)*keptEach {
				t.Errorf("the live heap grew from %d to %d KiB", heap>>10, now>>10)
			}
			if now := openFiles(); now > files {
				t.Errorf("%d files are open, %d were before", now, files)
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

// cycle starts, uses and stops a control plane, and resets it if it is a fork.
func cycle(t *testing.T, from *server.Snapshot) {
	t.Helper()
	s, err := server.New(server.Options{From: from})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	var changes watch.Interface
	if from == nil {
		changes, err = use(t.Context(), s)
	} else {
		err = s.Reset(t.Context(), from)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if changes != nil {
		for range changes.ResultChan() { // ends with the server
		}
	}
	port, err := net.Listen("tcp", address.Host)
	if err != nil {
		t.Errorf("the port is not free: %v", err)
		return
	}
	if err := port.Close(); err != nil {
		t.Error(err)
	}
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// openFiles returns the number of open files, or 0 where the system does not tell.
func openFiles() int {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(open)
}
