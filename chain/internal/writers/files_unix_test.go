//go:build unix

package writers

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Anything but a regular file is neither followed nor opened, and the error is logged once.
func TestAttackNoFile(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(path, elsewhere string) error{
		"link": func(path, elsewhere string) error { return os.Symlink(elsewhere, path) },
		"link within": func(path, _ string) error {
			return os.Symlink("other", path)
		},
		"pipe": func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "theirs")
			for _, path := range []string{elsewhere, filepath.Join(dir, "other")} {
				if err := os.WriteFile(path, []byte("theirs"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := plant(filepath.Join(dir, currentName), elsewhere); err != nil {
				t.Fatal(err)
			}
			var logged []string
			m := &Memory{}
			m.Keep(dir, 0, false, func(err error) { logged = append(logged, err.Error()) })
			m.Note(request("one/1.0"), 1, 1)
			m.Stop()
			if all := strings.Join(logged, "\n"); !strings.Contains(all, "not a file") || len(logged) > 2 {
				t.Errorf("logged %q", logged)
			}
			for _, path := range []string{elsewhere, filepath.Join(dir, "other")} {
				if string(content(t, path)) != "theirs" {
					t.Errorf("%s has changed", path)
				}
			}
		})
	}
}
