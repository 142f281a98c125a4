//go:build unix

package datadir_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kinproc/kinproc/server/internal/datadir"
)

// made creates a directory with subdirectories and files, all closed to others, and returns its
// path.
func made(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	must(t, os.MkdirAll(filepath.Join(dir, "pki"), 0o700))
	must(t, os.Mkdir(filepath.Join(dir, "empty"), 0o700))
	for _, name := range []string{"lock", "pki/ca.crt", "pki/ca.key"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// modes returns the modes of everything in a directory.
func modes(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	found := map[string]fs.FileMode{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		found[name] = info.Mode()
		return err
	}))
	return found
}

func TestClaimClosesWhatOthersCanRead(t *testing.T) {
	t.Parallel()
	dir := made(t)
	for name, mode := range map[string]fs.FileMode{
		".":          0o755,
		"pki":        0o750,
		"empty":      0o777,
		"lock":       0o644,
		"pki/ca.crt": 0o644,
		"pki/ca.key": 0o640,
	} {
		must(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	must(t, datadir.Claim(dir))
	for name, mode := range modes(t, dir) {
		if mode.IsDir() && mode.Perm() != 0o700 || !mode.IsDir() && mode.Perm() != 0o600 {
			t.Errorf("%s has mode %s", name, mode)
		}
	}
	must(t, datadir.Claim(dir+"/"))
}

func TestClaimRefuses(t *testing.T) {
	t.Parallel()
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	must(t, os.WriteFile(elsewhere, []byte("theirs"), 0o600))
	link := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			must(t, os.RemoveAll(path))
			must(t, os.Symlink(elsewhere, path))
		}
	}
	open := func(name string, mode fs.FileMode) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { must(t, os.Chmod(filepath.Join(dir, name), mode)) }
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		at     string // the path in the error
		says   string
	}{
		"link to a file":               {link("lock"), "lock", "symbolic link"},
		"link in place of a directory": {link("pki"), "pki", "symbolic link"},
		"link below":                   {link("pki/ca.key"), "pki/ca.key", "symbolic link"},
		"named pipe": {func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "lock")))
			must(t, syscall.Mkfifo(filepath.Join(dir, "lock"), 0o600))
		}, "lock", "is a named pipe"},
		"key that the group can write to": {
			open("pki/ca.key", 0o620), "pki/ca.key", "can be written to by other users (mode 0620)",
		},
		"file that all can write to": {
			open("lock", 0o606), "lock", "can be written to by other users (mode 0606)",
		},
		"keys in a directory for all": {
			open("pki", 0o777), "pki", "can be written to by other users (mode 0777)",
		},
		"directory that the group can use": {
			open(".", 0o770), "", "can be written to by other users (mode 0770)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := made(t)
			c.change(t, dir)
			before := modes(t, dir)
			for range 2 { // a refusal changes nothing, so the second attempt fails too
				err := datadir.Claim(dir)
				if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, c.at)+" ") ||
					!strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v, want an error that says %s %s", err, filepath.Join(dir, c.at), c.says)
				}
			}
			for name, mode := range modes(t, dir) {
				if before[name] != mode {
					t.Errorf("the mode of %s changed from %s to %s", name, before[name], mode)
				}
			}
		})
	}
	if data, err := os.ReadFile(elsewhere); err != nil || string(data) != "theirs" {
		t.Errorf("the target of the links contains %q, %v", data, err)
	}
}

func TestClaimRefusesALinkItself(t *testing.T) {
	t.Parallel()
	dir := made(t)
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	for _, path := range []string{link, link + "/"} {
		if err := datadir.Claim(path); err == nil || !strings.Contains(err.Error(), "symbolic link") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestClaimRefusesWhatOthersOwn needs files of two users. Root can create them. Anyone else uses
// files of root.
func TestClaimRefusesWhatOthersOwn(t *testing.T) {
	t.Parallel()
	const other = 12345
	if os.Geteuid() != 0 {
		if err := datadir.Claim("/"); err == nil ||
			!strings.Contains(err.Error(), "belongs to user 0") {
			t.Errorf("the root directory: %v", err)
		}
		return
	}
	for _, name := range []string{".", "lock", "pki", "pki/ca.key"} {
		dir := made(t)
		must(t, os.Lchown(filepath.Join(dir, name), other, -1))
		err := datadir.Claim(dir)
		if err == nil || !strings.Contains(err.Error(),
			filepath.Join(dir, name)+" belongs to user 12345, and this is user 0") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
