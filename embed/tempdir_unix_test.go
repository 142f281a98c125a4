//go:build unix

package embed_test

import (
	"os"
	"testing"
)

// ofOthers creates a directory that other users can read and, if running as root, one that belongs
// to another user.
func ofOthers(t *testing.T, marked func(name string, mode os.FileMode) string) []string {
	t.Helper()
	dirs := []string{marked("kinproc-readable", 0o755)}
	if os.Geteuid() == 0 {
		dirs = append(dirs, marked("kinproc-foreign", 0o700))
		must(t, os.Chown(dirs[1], 12345, 12345))
	}
	return dirs
}
