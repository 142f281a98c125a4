package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// modules are the folders of the repository's modules.
var modules = [...]string{".", "examples", "tools"}

// raise requires the libraries of another Kubernetes in all modules, with what goes with them, and
// generates files anew. A step that fails is reported: what does not compile yet is to be mended.
func raise(w io.Writer, dir string, from, to version) error {
	wanted, err := companions(to)
	if err != nil {
		return err
	}
	for _, module := range modules {
		at := filepath.Join(dir, module)
		gets, err := newer(filepath.Join(at, "go.mod"), from, to, wanted)
		if err != nil {
			return err
		}
		if len(gets) > 0 {
			// All at once: one by one, they would contradict each other. To tidy must wait until
			// everything compiles: for a package that is gone, the go command would take another
			// version again.
			step(w, at, "go", append([]string{"get"}, gets...)...)
			step(w, at, "go", "mod", "download")
		}
	}
	if err := setVersion(filepath.Join(dir, "server", "globals.go"), to); err != nil {
		return err
	}
	step(w, dir, "make", "generate")
	return nil
}

var constant = regexp.MustCompile(`(?m)^const KubernetesVersion = "v[\d.]+"$`)

// setVersion changes the constant KubernetesVersion in a file.
func setVersion(path string, v version) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(constant.FindAll(text, -1)) != 1 {
		return fmt.Errorf("%s has no constant KubernetesVersion of the expected form", path)
	}
	return os.WriteFile(path, constant.ReplaceAll(text,
		fmt.Appendf(nil, "const KubernetesVersion = %q", v.kubernetes())), 0o644)
}

// step runs a command and shows what it says.
func step(w io.Writer, dir, name string, args ...string) {
	fmt.Fprintf(w, "== %s: %s %s\n", dir, name, strings.Join(args, " "))
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, w, w
	if err := cmd.Run(); err != nil {
		fmt.Fprintf(w, "== FAILED: %v\n", err)
	}
}

// companions returns the versions of modules that k8s.io/apiserver requires and that must fit it:
// etcd, and the libraries of Kubernetes that have versions of their own.
func companions(v version) (map[string]string, error) {
	dir, err := download("k8s.io/apiserver", string(v))
	if err != nil {
		return nil, err
	}
	file, err := parse(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, err
	}
	wanted := map[string]string{}
	for _, r := range file.Require {
		if within(r.Mod.Path, "go.etcd.io", "k8s.io", "sigs.k8s.io") {
			wanted[r.Mod.Path] = r.Mod.Version
		}
	}
	return wanted, nil
}

// newer returns the module versions to get for a go.mod: the libraries that have the old version in
// their new one, and wanted ones. A later patch of a wanted module is kept.
func newer(path string, from, to version, wanted map[string]string) ([]string, error) {
	file, err := parse(path)
	if err != nil {
		return nil, err
	}
	var gets []string
	for _, r := range file.Require {
		have, want := r.Mod.Version, wanted[r.Mod.Path]
		switch {
		case within(r.Mod.Path, "k8s.io") && have == string(from):
			gets = append(gets, r.Mod.Path+"@"+string(to))
		case want == "" || want == have:
		case semver.MajorMinor(want) == semver.MajorMinor(have) && semver.Compare(have, want) > 0 &&
			semver.Compare(string(from), string(to)) < 0:
		default:
			gets = append(gets, r.Mod.Path+"@"+want)
		}
	}
	return gets, nil
}

// required returns the version in which a go.mod requires a module.
func required(path, module string) (string, error) {
	file, err := parse(path)
	if err != nil {
		return "", err
	}
	for _, r := range file.Require {
		if r.Mod.Path == module {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("%s does not require %s", path, module)
}

func parse(path string) (*modfile.File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(path, data, nil)
}

// within reports whether a module belongs to one of several domains.
func within(path string, domains ...string) bool {
	for _, domain := range domains {
		if strings.HasPrefix(path, domain+"/") {
			return true
		}
	}
	return false
}
