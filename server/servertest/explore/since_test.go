package explore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/server/internal/disturb"
)

// A write is tried again if its line has changed since a commit, if the line is not known, and if
// the file is not in the repository. This test is not parallel, because it changes the directory.
func TestSince(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=jane", "-c", "user.email=jane@example.com"}, args...)
		if _, err := git(t.Context(), "", args...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := changesSince(t.Context(), "main"); err == nil ||
		!strings.Contains(err.Error(), "must run in a git repository") {
		t.Errorf("without a repository: %v", err)
	}
	run("init", "-q", "-b", "main")
	write("mod/go.mod", "module example.com/mod\n")
	write("mod/a b.go", "1\n2\n3\n4\n5\n6\n7\n8\n")
	run("add", ".")
	run("commit", "-q", "-m", "first")
	write("mod/a b.go", "1\n++ b/2\nnew\n3\n4\n5\n7\n8\n") // a line for 2, a new one, and 6 is gone
	write("mod/new.go", "1\n")
	t.Chdir(filepath.Join(dir, "mod"))
	for _, ref := range []string{"nowhere", "--output=x"} {
		if _, err := changesSince(t.Context(), ref); err == nil ||
			!strings.Contains(err.Error(), "fetch the branch") {
			t.Errorf("since %s: %v", ref, err)
		}
	}
	c, err := changesSince(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		file  string
		lines string // those that have changed
	}{
		{"example.com/mod/a b.go", "23 67"},
		{filepath.Join(dir, "mod", "a b.go"), "23 67"},
		{"example.com/mod/new.go", "12345678"},
		{"example.com/other@v1.0.0/a b.go", "12345678"},
		{"", "12345678"},
	} {
		got := ""
		for line := 1; line <= 8; line++ {
			if c.concern(disturb.Disturbance{Caller: disturb.Caller{File: test.file, Line: line}}) {
				got += string(rune('0' + line))
			}
		}
		if want := strings.ReplaceAll(test.lines, " ", ""); got != want {
			t.Errorf("of %q, the lines %s have changed, want %s", test.file, got, want)
		}
	}
}
