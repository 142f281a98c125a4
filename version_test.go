package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// kubernetesVersion matches a full version of Kubernetes or of its libraries, and a minor version.
var kubernetesVersion = regexp.MustCompile(`(?:^|[^0-9.])v?[01]\.(\d\d)(?:\.(\d+))?\b`)

// namesVersions lists files, and folders, that name versions which are not the served one, and why.
var namesVersions = map[string]string{
	"CHANGELOG.md":                       "it says what was",
	"conformance/doc.go":                 "it says what was recorded",
	"docs/compatibility.md":              "it says what was compared",
	"docs/performance.md":                "it says what was measured",
	"examples/envtest-compare/README.md": "it says what was measured",
}

// namesNextVersion lists files, and folders, whose examples move to the next minor version.
var namesNextVersion = []string{"Makefile", "docs/upgrading.md", "tools/upgrade"}

// TestVersionAppearsOnce looks for places that name another version of Kubernetes than go.mod, and
// for messages that name one: those are to take it from k8s.io/component-base/version. Tests and
// recordings are left out. What else names a version is listed by make upgrade.
func TestVersionAppearsOnce(t *testing.T) {
	t.Parallel()
	libraries := requiredLibraries(t, "go.mod")
	if len(libraries) != 1 {
		t.Fatalf("go.mod requires libraries of several versions of Kubernetes: %s", libraries)
	}
	var minor, patch int
	if _, err := fmt.Sscanf(libraries[0], "v0.%d.%d", &minor, &patch); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "-co",
		"--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	for file := range strings.Lines(string(out)) {
		file = strings.TrimSpace(file)
		if path.Base(file) == "go.mod" {
			for _, version := range requiredLibraries(t, file) {
				if version != libraries[0] {
					t.Errorf("%s requires a Kubernetes library %s, but go.mod %s", file, version, libraries[0])
				}
			}
			continue
		}
		for _, place := range otherVersions(t, file, minor, patch) {
			t.Errorf("%s, but go.mod requires %s", place, libraries[0])
		}
	}
}

// inModules matches a module with its version in server/servertest/modules.go.
var inModules = regexp.MustCompile(`\{"([^"]+)", "(v[^"]+)",`)

// TestModulesAreThoseOfGoMod compares the versions that servertest knows with go.mod. Flag -update
// writes them.
func TestModulesAreThoseOfGoMod(t *testing.T) {
	t.Parallel()
	const path = "server/servertest/modules.go"
	goMod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	required := map[string]string{}
	parsed, err := modfile.Parse("go.mod", goMod, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range parsed.Require {
		required[r.Mod.Path] = r.Mod.Version
	}
	found := inModules.FindAllStringSubmatch(string(text), -1)
	if len(found) == 0 {
		t.Fatalf("%s names no modules", path)
	}
	updated := string(text)
	for _, m := range found {
		if version := required[m[1]]; version != m[2] {
			updated = strings.ReplaceAll(updated, m[0], fmt.Sprintf("{%q, %q,", m[1], version))
			if !*update {
				t.Errorf("%s has %s %s, but go.mod %s", path, m[1], m[2], version)
			}
		}
	}
	if *update && updated != string(text) {
		if err := os.WriteFile(path, []byte(updated), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOtherVersionsAreFound has a Kubernetes 1.37.2.
func TestOtherVersionsAreFound(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"is.md", "Kubernetes v1.37.2, k8s.io/api@v0.37.2, 1.36.0 and 10.0.36.3", ""},
		{"since.md", "so since 1.36, and etcd v3.6.8", ""},
		{"was.md", "fine\nKubernetes v1.37.1", ":2: names v1.37.1"},
		{"library.md", "go get k8s.io/api@v0.36.3", ":1: names v0.36.3"},
		{"next.md", "Kubernetes 1.38.0", ":1: names 1.38.0"},
		{"comment.go", "package a // of 1.37, like 1.36.3", ":1: names 1.36.3"},
		{"message.go", "package a\n\nconst a = \"of 1.37 only\"", ":3:11: \"of 1.37 only\" names a version"},
		{"history.go", "package a\n\nconst a, b = \"1.37\", \"so since 1.36\"", ""},
	} {
		file := filepath.Join(t.TempDir(), test.name)
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(otherVersions(t, file, 37, 2), ", ")
		if strings.ReplaceAll(got, file, "") != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// requiredLibraries returns the versions in which a go.mod requires libraries of Kubernetes.
func requiredLibraries(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m, err := modfile.Parse(file, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	var versions []string
	for _, r := range m.Require {
		if within(r.Mod.Path, "k8s.io") && strings.HasPrefix(r.Mod.Version, "v0.") &&
			!strings.HasPrefix(r.Mod.Version, "v0.0.0-") {
			versions = append(versions, r.Mod.Version)
		}
	}
	slices.Sort(versions)
	return slices.Compact(versions)
}

// otherVersions returns the places of a file that name a full version other than the given one, and
// the messages of a Go file that name a version.
func otherVersions(t *testing.T, file string, minor, patch int) []string {
	t.Helper()
	isGo := strings.HasSuffix(file, ".go")
	if !isGo && !strings.HasSuffix(file, ".md") && path.Base(file) != "Makefile" ||
		strings.HasSuffix(file, "_test.go") || strings.Contains("/"+file, "/testdata/") ||
		strings.HasPrefix(path.Base(file), "zz_generated") || namesVersions[file] != "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil // deleted, and not committed yet
	}
	if err != nil {
		t.Fatal(err)
	}
	next := slices.ContainsFunc(namesNextVersion, func(tree string) bool { return within(file, tree) })
	var places []string
	line := 0
	for content := range strings.Lines(string(text)) {
		line++
		for _, match := range kubernetesVersion.FindAllStringSubmatch(content, -1) {
			named, _ := strconv.Atoi(match[1])
			switch {
			case match[2] == "", // it may say since when something is so
				match[2] == strconv.Itoa(patch) && named == minor,
				match[2] == "0" && named <= minor && named > minor-4, // one that can be emulated
				match[2] == "0" && named == minor+1 && next,
				named > minor+1 || named < minor-8: // of something else
			default:
				places = append(places, fmt.Sprintf("%s:%d: names %s", file, line,
					strings.TrimLeft(match[0], " `\"(@/=")))
			}
		}
	}
	if isGo && !next && strings.Contains(string(text), fmt.Sprintf("1.%d", minor)) {
		places = append(places, messagesWithVersion(t, file, text, minor)...)
	}
	return places
}

// messagesWithVersion returns the places of texts that name the given minor version.
func messagesWithVersion(t *testing.T, file string, text []byte, minor int) []string {
	t.Helper()
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var places []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING || !strings.Contains(literal.Value, " ") {
			return true
		}
		for _, match := range kubernetesVersion.FindAllStringSubmatch(literal.Value, -1) {
			if match[1] == strconv.Itoa(minor) {
				places = append(places, fmt.Sprintf("%s: %s names a version",
					files.Position(literal.Pos()), literal.Value))
			}
		}
		return true
	})
	return places
}
