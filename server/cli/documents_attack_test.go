package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/chain/documents"
	"github.com/kinproc/kinproc/server/cli/internal/develop"
	"github.com/kinproc/kinproc/server/cli/internal/settings"
	"github.com/kinproc/kinproc/server/internal/install"
)

// TestAttackFiles has files of a repository with YAML that takes gigabytes with its aliases
// expanded.
func TestAttackFiles(t *testing.T) {
	t.Parallel()
	bomb := []byte("a: &a \"" + strings.Repeat("A", 300_000) + "\"\nb:\n" +
		strings.Repeat("- [*a, *a, *a, *a]\n", 4000))
	file := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(file, bomb, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func() error{
		"kinproc.yaml": func() error {
			_, err := settings.ReadFile("f", bomb, func(string, string) error { return nil })
			return err
		},
		"manifest":     func() error { _, err := install.Decode(bomb); return err },
		"--prepare":    func() error { _, err := readManifests([]string{filepath.Dir(file)}); return err },
		"registration": func() error { _, err := develop.ReadRegistration(file); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tooLarge *documents.TooLargeError
			if err := read(); !errors.As(err, &tooLarge) {
				t.Errorf("got %.300v", err)
			}
		})
	}
}

// TestReadManifests has files and folders of manifests.
func TestReadManifests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yml":  "apiVersion: v1\nkind: B\n---\n# nothing\n---\napiVersion: v1\nkind: C\n",
		"a.json": `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"A"}]}`,
		"c.txt":  "-", "sub/d.yaml": "-", "empty/e.txt": "-", "wrong/f.yaml": "kind: F",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := readManifests([]string{dir, filepath.Join(dir, "b.yml")})
	var kinds []string
	for _, file := range all {
		for _, u := range file.Objects {
			kinds = append(kinds, u.GetKind()+" of "+filepath.Base(file.Name))
		}
	}
	want := "A of a.json, B of b.yml, C of b.yml, B of b.yml, C of b.yml"
	if got := strings.Join(kinds, ", "); got != want || err != nil {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	for name, want := range map[string]string{
		"none": "no such file", "empty": "has no objects", "wrong": "f.yaml: document 1: it has no apiVersion",
	} {
		if _, err := readManifests([]string{filepath.Join(dir, name)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
