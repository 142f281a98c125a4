package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// pageOutExecutable asks the kernel to page out the program's executable. Most of its pages are
// needed only during the start; the others are read again on demand. A kernel that caches files in
// large pages would otherwise keep all 100 MiB in memory for the sake of a few pages. This is only
// an optimization, so errors are ignored, such as those for a file of another user.
func pageOutExecutable() {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	if file, err := os.Open(path); err == nil {
		// Pages that are not on the disk yet cannot be paged out. This starts to write them,
		// without waiting.
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

// readOnly returns the mappings of a file that are not writable. Maps is in the format of
// proc_pid_maps(5).
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
