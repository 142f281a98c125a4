//go:build unix

package private

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// checkPrivate returns an error if a file does not belong to the user or if others can write to it.
func checkPrivate(info fs.FileInfo, user int) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("has no owner")
	}
	if int(stat.Uid) != user {
		return fmt.Errorf("belongs to user %d, but you are user %d", stat.Uid, user)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("has mode %04o, so others may write to it (run chmod go-w to prevent that)",
			mode)
	}
	return nil
}

// checkOwn is like checkPrivate for a file that the user has written. Such files are often open to
// the user's own group, which has nobody else in it.
func checkOwn(info fs.FileInfo, user int) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && int(stat.Uid) == user && stat.Gid == stat.Uid && info.Mode().Perm()&0o002 == 0 {
		return nil
	}
	return checkPrivate(info, user)
}
