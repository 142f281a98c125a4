package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
	"github.com/rogpeppe/go-internal/testscript"
	modmodule "golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// block matches a code block of a document, of shell commands or of Go.
var block = regexp.MustCompile("(?ms)^```(sh|go)\n(.*?)^```$")

// TestMain makes the test binary act as the program, so that the shells of documents find it in
// their PATH: under its own name, and under those of the programs that it replaces for envtest.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kinproc": main, "kube-apiserver": main, "etcd": main})
}

// TestDocumentsCanBePasted runs the blocks of shell commands in the documents, each in a shell of
// its own that ends at the first error. The shells start in a copy of the repository, those of a
// module of the user's own in an empty directory. There kinproc comes from a module proxy, without
// replace directives. The Go block of the README is the test of that module.
func TestDocumentsCanBePasted(t *testing.T) {
	t.Parallel()
	clone, own, home := copyOfRepository(t), t.TempDir(), t.TempDir()
	env := append(os.Environ(),
		"HOME="+home, // kubectl keeps caches there
		"KUBECONFIG=",
		"GOWORK=off",
		// make lint vets it, and the linker takes half as long again for what a debugger needs
		"GOFLAGS=-vet=off -ldflags=-w",
		"GOBIN="+filepath.Join(home, "go", "bin"),
		"GOPATH="+filepath.Join(home, "go"),
		"GOCACHE="+goCommand(t, ".", "env", "GOCACHE"),
		"GOMODCACHE="+goCommand(t, ".", "env", "GOMODCACHE"),
		"GOPROXY="+moduleProxy(t, clone)+","+goCommand(t, ".", "env", "GOPROXY"),
		"GONOSUMDB="+module,
	)
	run := func(t *testing.T, dir, script string) {
		t.Helper()
		shell := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", runnable(script))
		shell.Dir, shell.Env = dir, env
		// A server that the script leaves behind may hold the output open, and one that it has
		// ended with kill does for a moment.
		shell.WaitDelay = time.Minute
		if out, err := shell.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, script, out)
		}
	}
	for _, document := range []string{
		"README.md", "examples/README.md", "examples/crontab/README.md", "examples/engine/README.md",
		"examples/plain/README.md", "docs/compatibility.md", "docs/dashboard.md", "docs/envtest.md",
		"docs/explore.md", "docs/faults.md", "docs/performance.md", "docs/project-layout.md",
		"docs/sandbox.md", "docs/security.md", "docs/snapshots.md",
		"docs/testing.md", "docs/time.md", "docs/tour/README.md", "docs/troubleshooting.md",
	} {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		blocks := block.FindAllSubmatch(text, -1)
		if begun := strings.Count(string(text), "\n```sh\n") +
			strings.Count(string(text), "\n```go\n"); begun != len(blocks) {
			t.Errorf("%s: %d blocks begin, but %d were found", document, begun, len(blocks))
		}
		for _, b := range blocks {
			switch language, content := string(b[1]), string(b[2]); {
			case language == "go":
				if err := os.WriteFile(filepath.Join(own, "block_test.go"), b[2], 0o600); err != nil {
					t.Fatal(err)
				}
				run(t, own, "go test ./...")
			case strings.Contains(content, "go test ./..."):
				// Running all tests of the examples here would run them twice.
			case strings.HasPrefix(content, "go build -o bin/kinproc ."):
				// A script of server/cli builds the program.
			case strings.HasPrefix(content, "go mod init"):
				run(t, own, content)
			default:
				run(t, clone, content)
			}
		}
	}
}

// copyOfRepository copies the files that git knows or would add.
func copyOfRepository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files, err := exec.CommandContext(t.Context(), "git", "ls-files", "-co", "--exclude-standard").
		Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for name := range strings.Lines(string(files)) {
		name = strings.TrimSpace(name)
		data, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// moduleProxy returns the URL of a module proxy that has one version of this module, made of a copy
// of the repository. The version is named after the content, so that the go command compiles the
// same content only once. It is removed from the module cache at the end.
func moduleProxy(t *testing.T, clone string) string {
	t.Helper()
	cache := goCommand(t, ".", "env", "GOMODCACHE")
	// Another run with the same module cache would remove the same version.
	unlock, err := lockedfile.MutexAt(filepath.Join(cache, "cache", "kinproc.lock")).Lock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	content, err := dirhash.HashDir(clone, "", dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	revision := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))[:12]
	version := modmodule.PseudoVersion("v0", "", time.Unix(0, 0), revision)
	dir := t.TempDir()
	at := filepath.Join(dir, module, "@v")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	archive, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if err := zip.CreateFromDir(archive,
		modmodule.Version{Path: module, Version: version}, clone); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	info := `{"Version":"` + version + `","Time":"1970-01-01T00:00:00Z"}`
	for name, content := range map[string][]byte{
		version + ".mod":  manifest,
		version + ".info": []byte(info),
		"list":            []byte(version + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(at, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		extracted := filepath.Join(cache, module+"@"+version)
		_ = filepath.WalkDir(extracted, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = os.Chmod(path, 0o700) // the go command makes it read-only
			}
			return err
		})
		downloaded, _ := filepath.Glob(filepath.Join(cache, "cache", "download", module,
			"@v", version+".*"))
		for _, path := range append(downloaded, extracted,
			filepath.Join(cache, "cache", "download", module, "@v", "list")) {
			if err := os.RemoveAll(path); err != nil {
				t.Error(err)
			}
		}
	})
	return "file://" + filepath.ToSlash(dir)
}
