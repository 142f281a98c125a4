//go:build unix

package plainfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A file is opened, also through a link, and nothing else is. A pipe does not hold the caller up.
func TestAttackPipeInPlaceOfAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.WriteFile(path("file"), []byte("text"), 0o600),
		os.Symlink("file", path("link")),
		syscall.Mkfifo(path("pipe"), 0o600),
		os.Symlink("pipe", path("link-to-pipe")),
		os.Mkdir(path("directory"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for kind, open := range map[string]func(string) (*os.File, error){
		"by its path": func(name string) (*os.File, error) { return Open(path(name)) },
		"in a root":   func(name string) (*os.File, error) { return OpenIn(root, name) },
	} {
		for _, name := range []string{"file", "link"} {
			f, err := open(name)
			if err != nil {
				t.Errorf("%s %s: %v", name, kind, err)
				continue
			}
			if data, err := io.ReadAll(f); string(data) != "text" || err != nil {
				t.Errorf("%s %s: %q, %v", name, kind, data, err)
			}
			f.Close()
		}
		for _, name := range []string{"pipe", "link-to-pipe", "directory"} {
			if f, err := open(name); !errors.Is(err, ErrNotRegular) {
				t.Errorf("%s %s: %v, %v", name, kind, f, err)
			}
		}
		if _, err := open("none"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what is not there %s: %v", kind, err)
		}
	}
}
