package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// walk matches a block of shell commands and the block of their output.
var walk = regexp.MustCompile("(?ms)^```sh\n(.*?)^```\n\n```\n(.*?)^```$")

// TestTour runs the commands of the walks in docs/tour and of docs/history.md, and compares what
// they print with what the documents say. Flag -update writes it into the documents.
func TestTour(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob("docs/tour/[0-9]-*.md")
	if err != nil || len(documents) != 5 {
		t.Fatalf("the walks are %q (%v)", documents, err)
	}
	documents = append(documents, "docs/history.md")
	clone := copyOfRepository(t)
	for _, document := range documents { // one after the other, in the same directory
		t.Run(filepath.Base(document), func(t *testing.T) { testWalk(t, clone, document) })
	}
}

func testWalk(t *testing.T, clone, document string) {
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	blocks := walk.FindAllStringSubmatchIndex(text, -1)
	if begun := strings.Count(text, "\n```sh\n"); begun != len(blocks) {
		t.Fatalf("%d blocks of commands, but %d with output", begun, len(blocks))
	}
	const end = "=== end of a block ==="
	var script strings.Builder
	for _, b := range blocks {
		fmt.Fprintf(&script, "%secho '%s'\n", text[b[2]:b[3]], end)
	}
	printed := strings.Split(runWalk(t, clone, script.String()), end+"\n")
	if len(printed) != len(blocks)+1 {
		t.Fatalf("the output has %d blocks: %s", len(printed), printed)
	}
	var updated strings.Builder
	last := 0
	for i, b := range blocks {
		want, got := text[b[4]:b[5]], printed[i]
		if steady(got) != steady(want) {
			if !*update {
				t.Errorf("after\n%sthe document says\n%s, but it is\n%s", text[b[2]:b[3]], want, got)
			}
			want = got
		}
		updated.WriteString(text[last:b[4]] + want)
		last = b[5]
	}
	updated.WriteString(text[last:])
	if *update && updated.String() != text {
		if err := os.WriteFile(document, []byte(updated.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// developed matches the beginning of kinproc's screen, with a version that is not a release.
var developed = regexp.MustCompile(`(?m)^kinproc (v0\.0\.0-\S+|\(devel\)),`)

// built matches the commands that build the program and run it.
var built = regexp.MustCompile(`\bgo (run \.|tool kinproc)`)

// runnable returns a document's script as a test runs it: with the program that [TestMain] puts
// into the PATH, and on any port, because the default one may be in use. A script of server/cli
// runs go run.
func runnable(script string) string {
	script = built.ReplaceAllString(script, "kinproc")
	return strings.ReplaceAll(script, "start --detach", "start --detach --secure-port 0")
}

// runWalk runs a script in a shell in the clone and returns its output.
func runWalk(t *testing.T, clone, script string) string {
	t.Helper()
	shell := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", runnable(script))
	shell.Dir = clone
	shell.Env = append(os.Environ(),
		"HOME="+t.TempDir(), "KUBECONFIG=", "GOWORK=off",
		"GOCACHE="+goCommand(t, ".", "env", "GOCACHE"),
		"GOMODCACHE="+goCommand(t, ".", "env", "GOMODCACHE"),
	)
	shell.WaitDelay = time.Minute // for programs that the walk has ended with kill
	out, err := shell.CombinedOutput()
	if err != nil {
		stop := exec.Command("kinproc", "stop")
		stop.Dir = clone
		_ = stop.Run() // it may not have started
		t.Fatalf("%v\n%s", err, out)
	}
	text := developed.ReplaceAllString(string(out), "kinproc (devel),")
	return strings.ReplaceAll(text, clone, "/home/you/kinproc")
}

// unsteady matches what differs from run to run, and says what to compare instead.
var unsteady = []struct {
	what    *regexp.Regexp
	instead string
}{
	// A start says so if it takes longer than a second.
	{regexp.MustCompile(`(?m)^kinproc: still starting after .*\n`), ""},
	{regexp.MustCompile(`\d+(\.\d+)? ?(ns|µs|ms|s|m)\b`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`revision \d+`), "revision N"},
	{regexp.MustCompile(`(?m)^\d+ +\d\d:\d\d:\d\d `), "N CLOCK "},
	{regexp.MustCompile(`resourceVersion: "\d+"`), "resourceVersion: N"},
	{regexp.MustCompile(`kinproc/v\S+`), "kinproc/VERSION"},
	{regexp.MustCompile(`\d+ bytes`), "N bytes"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(` +`), " "},
	// A proxy has a connection already, or makes one.
	{regexp.MustCompile(`(?m)^( TIME){2} (connection|TLS|response) .*\n`), ""},
}

func steady(output string) string {
	for _, u := range unsteady {
		output = u.what.ReplaceAllString(output, u.instead)
	}
	return strings.TrimRight(output, "\n")
}
