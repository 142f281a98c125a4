package examples_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// The recipes for test runners work, if the runners are there.
func TestRecipes(t *testing.T) {
	t.Parallel()
	python := []string{"pytest", "-n", "2"}
	if exec.Command(python[0], "-n", "2", "--version").Run() != nil {
		python = []string{"python3", "-m", "unittest"}
	}
	maven := slices.Concat([]string{"mvn", "--quiet"}, debianPackages())
	for name, c := range map[string]struct {
		prepare, command []string
	}{
		"pytest": {command: python},
		"vitest": {
			prepare: []string{"npm", "install", "--no-audit", "--no-fund", "--silent"},
			command: []string{"npx", "vitest", "run"},
		},
		"junit": {
			prepare: slices.Concat(maven, []string{"test-compile"}),
			command: slices.Concat(maven, []string{"test"}),
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

// debianPackages returns the arguments that make Maven use the packages of Debian, if they are
// installed: junit5, libsurefire-java and the plugins for resources and the compiler.
func debianPackages() []string {
	const repository = "/usr/share/maven-repo"
	version := func(artifact string) string {
		found, err := filepath.Glob(filepath.Join(repository, artifact, "[0-9]*"))
		if err != nil || len(found) == 0 {
			return ""
		}
		return filepath.Base(found[len(found)-1])
	}
	junit := version("org/junit/jupiter/junit-jupiter")
	surefire := version("org/apache/maven/plugins/maven-surefire-plugin")
	if junit == "" || surefire == "" {
		return nil
	}
	return []string{
		"--offline", "-Dmaven.repo.local=" + repository, "-Djunit.version=" + junit,
		"-Dsurefire.version=" + surefire,
	}
}
