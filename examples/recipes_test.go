package examples_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The recipes for test runners work, if the runners are there.
func TestRecipes(t *testing.T) {
	t.Parallel()
	python := []string{"python3", "-m", "unittest"}
	if exec.Command("python3", "-c", "import pytest, xdist").Run() == nil {
		python = []string{"python3", "-m", "pytest", "-n", "2"}
	}
	for name, c := range map[string]struct {
		prepare, command []string
	}{
		"pytest": {command: python},
		"vitest": {
			prepare: []string{"npm", "install", "--no-audit", "--no-fund", "--silent"},
			command: []string{"npx", "vitest", "run"},
		},
		"cargo": {command: []string{"cargo", "test", "--offline", "--quiet"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(c.command[0]); err != nil {
				t.Skip(err)
			}
			dir := filepath.Join(t.TempDir(), name)
			if err := os.CopyFS(dir, os.DirFS(filepath.Join("recipes", name))); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*timeout)
			defer cancel()
			if c.prepare != nil {
				prepare := exec.CommandContext(ctx, c.prepare[0], c.prepare[1:]...)
				prepare.Dir = dir
				if out, err := prepare.CombinedOutput(); err != nil {
					t.Skipf("the packages of the test cannot be had: %v: %s", err, out)
				}
			}
			cmd := exec.CommandContext(ctx, os.Args[0],
				append([]string{"exec", "--parallel", "2", "--"}, c.command...)...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), kinprocVariable+"=1", "KUBECTL="+os.Args[0]+" kubectl",
				"PYTHONDONTWRITEBYTECODE=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
