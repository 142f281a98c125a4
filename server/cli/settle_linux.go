package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// pageOutExecutable has the kernel let go of the program's own pages, most of which were read during the start only; those that are needed
// again are read again. A kernel that caches files in large pages would hold all 100 MiB in memory for the few that are. It is an economy:
// what fails, as for a file of another user, is ignored.
func pageOutExecutable() {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	if file, err := os.Open(path); err == nil {
		// What is not on the disk yet cannot be let go: this begins to write it, and does not wait.
		_ = unix.SyncFileRange(int(file.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
		_ = file.Close()
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for _, m := range readOnly(maps, path) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_PAGEOUT)
	}
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// readOnly finds the mappings of a file that are not written to, in the form of proc_pid_maps(5).
func readOnly(maps []byte, path string) []mapping {
	var found []mapping
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		var m mapping
		var mode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &m.start, &m.end, &mode); err != nil {
			continue
		}
		if strings.HasSuffix(lines.Text(), " "+path) && !strings.Contains(mode, "w") {
			found = append(found, m)
		}
	}
	return found
}
