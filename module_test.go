package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestKubernetesItselfIsNowhereBelow(t *testing.T) {
	t.Parallel()
	for dep := range strings.Lines(goCommand(t, ".", "list", "-mod=readonly", "-deps", "./...")) {
		if within(strings.TrimSpace(dep), "k8s.io/kubernetes") {
			t.Errorf("%s is among the dependencies", dep)
		}
	}
}

// TestOthersCanRequireThis compiles a module that knows only where this module is.
func TestOthersCanRequireThis(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example.com/theirs\n\ngo 1.26.0\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + here + "\n",
		"go.sum": string(sums),
		"theirs.go": `package theirs

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
)

func Start(ctx context.Context) (*rest.Config, error) {
	s, err := server.New(server.Options{})
	if err != nil {
		return nil, err
	}
	return s.RESTConfig(), s.Start(ctx)
}
`,
		"theirs_test.go": `package theirs

import (
	"testing"

	"github.com/kinproc/kinproc/server/servertest"
)

func TestTheirs(t *testing.T) { _ = servertest.Run(t, servertest.WithoutControllers).RESTConfig() }
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	goCommand(t, dir, "vet", "./...") // compiles the tests too, but links nothing
}
