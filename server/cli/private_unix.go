//go:build unix

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// checkPrivate refuses what does not belong to the user, or what others may write to.
func checkPrivate(info fs.FileInfo, user int) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("has no owner")
	}
	if int(stat.Uid) != user {
		return fmt.Errorf("belongs to user %d, and you are %d", stat.Uid, user)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("has mode %04o, so others may write to it (chmod go-w takes that away)", mode)
	}
	return nil
}
