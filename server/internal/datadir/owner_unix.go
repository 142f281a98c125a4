//go:build unix

package datadir

import (
	"io/fs"
	"os"
	"syscall"
)

// owner returns the user IDs of the file's owner and of the caller.
func owner(info fs.FileInfo) (owner, caller int) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid), os.Geteuid()
	}
	return -1, os.Geteuid()
}

// openTo returns the permissions of the group and of others on a file.
func openTo(info fs.FileInfo) fs.FileMode { return info.Mode().Perm() & 0o077 }
