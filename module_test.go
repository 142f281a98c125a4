package main

import (
	"os"
	"os/exec"
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
	return strings.TrimSpace(string(out))
}

func TestKubernetesItselfIsNowhereBelow(t *testing.T) {
	t.Parallel()
	for dep := range strings.Lines(goCommand(t, ".", "list", "-mod=readonly", "-deps", "./...")) {
		if within(strings.TrimSpace(dep), "k8s.io/kubernetes") {
			t.Errorf("%s is among the dependencies", dep)
		}
	}
}
