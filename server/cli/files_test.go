package cli_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/server/internal/datadir"
)

var inBackticks = regexp.MustCompile("`([^`]+)`")

// documentedFiles returns the names in the first column of the tables of docs/security.md.
func documentedFiles(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, tables, found := strings.Cut(string(text), "| File | Acts on it |")
	if !found {
		t.Fatal("docs/security.md has no table of files")
	}
	for line := range strings.Lines(tables) {
		cells := strings.Split(line, "|")
		if strings.HasPrefix(line, "#") {
			break
		}
		if len(cells) < 3 {
			continue
		}
		for _, match := range inBackticks.FindAllStringSubmatch(cells[1], -1) {
			names = append(names, match[1])
		}
	}
	return names
}

// isDocumented reports whether a file matches one of the names, or is below one that ends in a
// slash. What is in the folder of an ephemeral sandbox must be documented itself.
func isDocumented(names []string, file string) bool {
	if parts := strings.SplitN(file, "/", 3); parts[0] == "ephemeral" && len(parts) == 3 {
		return isDocumented(names, parts[2])
	}
	return slices.ContainsFunc(names, func(name string) bool {
		matches, _ := path.Match(name, file)
		return matches || strings.HasSuffix(name, "/") && strings.HasPrefix(file, name)
	})
}

// TestFilesAreDocumented starts control planes that write all files that they can, and looks for
// each in the tables of docs/security.md: whoever adds a file has to say there what protects it. It
// takes longer than a second, because it starts three programs.
func TestFilesAreDocumented(t *testing.T) {
	t.Parallel()
	home, work := t.TempDir(), t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("kinproc", args...)
		cmd.Dir = work
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, "config"),
			"XDG_STATE_HOME="+filepath.Join(home, "state"), "AppData="+filepath.Join(home, "config"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("kinproc %v: %v, %s", args, err, out)
		}
	}
	names := documentedFiles(t)
	look := func(dir string) {
		t.Helper()
		files := 0
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil && !os.IsNotExist(err) { // a control plane is at work
				return err
			}
			if err != nil || d.IsDir() {
				return nil
			}
			name, err := filepath.Rel(dir, path)
			if files++; err == nil && !isDocumented(names, filepath.ToSlash(name)) {
				t.Errorf("%s is not in a table of docs/security.md: say there what protects it, and "+
					"what somebody can do who puts one there", name)
			}
			return err
		})
		if err != nil || files == 0 {
			t.Errorf("%s: %d files, %v", dir, files, err)
		}
	}
	t.Cleanup(func() { run("delete", "--all") })
	run("start", "--detach", "--secure-port=0", "--name=kept", "--listen-etcd=127.0.0.1:0",
		"--dashboard")
	run("start", "--detach", "--secure-port=0", "--ephemeral", "--name=passing")
	run("snapshot", "save", filepath.Join(work, "snapshot.db"))
	data := filepath.Join(work, ".kinproc")
	look(data)
	look(filepath.Join(home, "state"))
	look(filepath.Join(home, "config"))
	run("stop", "--all")
	look(data)
	run("start", "--detach", "--secure-port=0", "--from=snapshot.db", "--data-dir=forked")
	run("stop", "--data-dir=forked")
	look(filepath.Join(work, "forked"))
	for _, name := range datadir.Contents() {
		if !slices.ContainsFunc(names, func(documented string) bool {
			return documented == name || strings.HasPrefix(documented, name+"/")
		}) {
			t.Errorf("%s is not in the table of docs/security.md", name)
		}
	}
}
