//go:build unix

package ownership

import (
	"io/fs"
	"os"
	"syscall"
)

// owner returns to whom a file belongs, and who the caller is.
func owner(info fs.FileInfo) (owner, caller int) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid), os.Geteuid()
	}
	return -1, os.Geteuid()
}

// openTo is what the group and all others may do with a file.
func openTo(info fs.FileInfo) fs.FileMode { return info.Mode().Perm() & 0o077 }
