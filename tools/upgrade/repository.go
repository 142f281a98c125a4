package main

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
)

// mentions returns the lines of the repository that name a minor version of Kubernetes, or a
// version of its libraries.
func mentions(dir string, v version) ([]string, error) {
	_, minor, _ := strings.Cut(v.minor(), ".")
	pattern := fmt.Sprintf(`(^|[^0-9.])(1\.%s($|[^0-9])|0\.%[1]s\.[0-9])`, minor)
	return grep(dir, "-E", pattern, "--", ".", ":!*.sum", ":!*go.mod", ":!CHANGELOG.md",
		":!*/testdata/*", ":!*zz_generated*")
}

// unnamed returns the control loops of kube-controller-manager that neither
// server/internal/controllers nor docs/compatibility.md names.
func unnamed(dir string, fetch func(version) (sources, error), v version) ([]string, error) {
	s, err := fetch(v)
	if err != nil {
		return nil, err
	}
	names, err := loops(s, v)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		found, err := grep(dir, "-wF", name, "--", "docs/compatibility.md",
			"server/internal/controllers/*.go", ":!*_test.go")
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			lines = append(lines, name)
		}
	}
	return lines, nil
}

// grep returns the lines that git grep finds in the repository.
func grep(dir string, args ...string) ([]string, error) {
	cmd := exec.Command("git", append([]string{"grep", "-n"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil, nil // no such line
	}
	if err != nil {
		return nil, fmt.Errorf("git grep: %w", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}
