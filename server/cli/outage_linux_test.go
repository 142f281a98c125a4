package cli_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEndsWhenItCannotWrite keeps the program's files from growing, as a full disk does. The first
// case hits etcd's write-ahead log, to which each write goes before it is acknowledged. The second
// case hits the database, which is written in the background and whose failure leaves etcd's
// mutexes locked.
func TestEndsWhenItCannotWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit uint64 // the maximum file size
		size  int    // the size of an object
	}{
		"log": {1, 100},
		// A file of the write-ahead log is never much larger than 64 MiB.
		"database": {70 << 20, 900_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			p := startProgram(t, dir)
			acked := load(t.Context(), t, p.client(), c.size, func(n int) {
				if n != 10 {
					return
				}
				if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE,
					&unix.Rlimit{Cur: c.limit, Max: unix.RLIM_INFINITY}, nil); err != nil {
					t.Error(err)
				}
			})
			p.fails("file too large")
			again := startProgram(t, dir) // without the limit
			again.has(acked)
			again.kill()
		})
	}
}
