//go:build unix

package private

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDirectoryOfAnotherUser(t *testing.T) {
	t.Parallel()
	_, err := openAs(os.Geteuid()+1, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), " belongs to user ") {
		t.Errorf("it was opened: %v", err)
	}
}

// TestPlantedTemporaryFile has a link where Write makes its temporary file.
func TestPlantedTemporaryFile(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(path, "key")
	if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("key", filepath.Join(path, "record.new")); err != nil {
		t.Fatal(err)
	}
	dir, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := dir.Write("record", []byte("text")); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(key); err != nil || string(data) != "secret" {
		t.Errorf("the file that the link names has %q, %v", data, err)
	}
	if data, err := dir.Read("record"); err != nil || string(data) != "text" {
		t.Errorf("got %q, %v", data, err)
	}
}
