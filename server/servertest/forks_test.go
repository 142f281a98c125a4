package servertest_test

import (
	"flag"
	"net"
	"net/url"
	"os"
	"runtime"
	"testing"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

var forks = flag.Int("forks", 5, "how many forks TestForksLeaveNothing starts and stops")

// kept is how much the live heap may grow from the first tenth of the forks to the last. It is the
// noise of caches that the process has once, and far less than one control plane takes.
const kept = 8 << 20

// TestForksLeaveNothing starts, uses and stops many control planes that begin with one snapshot.
// They leave no goroutines, no files, no ports and no memory.
func TestForksLeaveNothing(t *testing.T) { // not parallel: it inspects the whole process
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
	forkOnce(t, snapshot) // what a process makes once
	before, files := running(), openFiles()
	var heap uint64
	for n := range *forks {
		forkOnce(t, snapshot)
		if n == *forks/10 {
			endsAll(t, before)
			heap = liveHeap()
		}
	}
	endsAll(t, before)
	if now := liveHeap(); now > heap+kept {
		t.Errorf("the live heap grew from %d to %d KiB", heap>>10, now>>10)
	}
	if now := openFiles(); now > files {
		t.Errorf("%d files are open, %d were before", now, files)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func forkOnce(t *testing.T, snapshot *server.Snapshot) {
	t.Helper()
	s, err := server.New(server.Options{From: snapshot})
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
	if err := s.Reset(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
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
