//go:build unix

package embed

import (
	"io/fs"
	"os"
	"syscall"
)

// privateToUser reports whether a directory belongs to this user and is not accessible to others.
func privateToUser(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid() && info.Mode().Perm() == 0o700
}
