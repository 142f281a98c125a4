package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// facts are what a version of Kubernetes says about something, by the name of what it is about.
type facts map[string]string

// A section of the list compares one sort of facts.
type section struct {
	title string
	read  func(sources, version) (facts, error)
	// decide says what to do about a difference.
	decide string
	// join, if set, makes fewer lines of what belongs together.
	join func(lines []string, before, after facts) []string
}

func sections() []section {
	return []section{
		{
			"Resources and subresources", resources,
			"their declarations, the Makefile's OPENAPI_PACKAGES, the bootstrap roles", nil,
		},
		{
			"Fields", fields,
			"defaults, validation, rules of updates, what is cleared without a gate", byType,
		},
		{
			"Constants", constants,
			"validation of the fields that have such values, and what acts on them", bySubject,
		},
		{"Validation tags", tags, "hand-written rules of the same fields", bySubject},
		{"Feature gates", gates, "server/internal/featuregates, and its testdata", nil},
		{"Admission plugins", plugins, "the order in server/internal/admission", nil},
		{"Control loops", loops, "the list in server/internal/controllers", nil},
	}
}

// list compares two versions of Kubernetes, and prints the differences.
func list(w io.Writer, dir string, from, to version) error {
	before, err := fetch(from)
	if err != nil {
		return err
	}
	after, err := fetch(to)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nFrom Kubernetes %s to %s: + is new, - is gone, ~ differs.\n",
		from.kubernetes(), to.kubernetes())
	for _, s := range sections() {
		lines, err := s.compare(before, after, from, to)
		printSection(w, s.title, s.decide, lines, err)
	}
	lines, err := changed(dir, from, to)
	printSection(w, "Symbols of docs/upstream.md", "what the place must do now", lines, err)
	lines, err = mentions(dir, from)
	printSection(w, "Lines that name "+from.minor(), "what is true of "+to.minor(), lines, err)
	return nil
}

func printSection(w io.Writer, title, decide string, lines []string, err error) {
	fmt.Fprintf(w, "\n%s (%d; look at: %s)\n", title, len(lines), decide)
	for _, line := range lines {
		fmt.Fprintln(w, " ", line)
	}
	if err != nil {
		fmt.Fprintln(w, "  not compared:", err)
	}
}

func (s section) compare(before, after sources, from, to version) ([]string, error) {
	then, err := s.read(before, from)
	if err != nil {
		return nil, err
	}
	now, err := s.read(after, to)
	if err != nil {
		return nil, err
	}
	if len(then) == 0 || len(now) == 0 {
		return nil, errors.New("nothing was found in one of the versions: look where it has moved to")
	}
	lines := differences(then, now)
	if s.join != nil {
		lines = s.join(lines, then, now)
	}
	return lines, nil
}

// bySubject makes one line of those that have the same first word.
func bySubject(lines []string, _, _ facts) []string {
	var joined []string
	of := map[string]int{}
	for _, line := range lines {
		subject, rest, _ := strings.Cut(line[2:], " ")
		if at, ok := of[subject]; ok {
			joined[at] += ", " + line[:2] + rest
			continue
		}
		of[subject] = len(joined)
		joined = append(joined, "~ "+subject+": "+line[:2]+rest)
	}
	return joined
}

// differences returns a line for each fact that differs.
func differences(before, after facts) []string {
	var lines []string
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		then, was := before[name]
		now, is := after[name]
		switch {
		case !was:
			lines = append(lines, strings.TrimSpace("+ "+name+" "+now))
		case !is:
			lines = append(lines, "- "+name)
		case then != now:
			lines = append(lines, fmt.Sprintf("~ %s %s → %s", name, then, now))
		}
	}
	return lines
}

// sources are the folders of the modules of one version of Kubernetes, by module.
type sources map[string]string

// fetch downloads what the sections read.
func fetch(v version) (sources, error) {
	s := sources{}
	for module, version := range map[string]string{
		"k8s.io/kubernetes":              v.kubernetes(),
		"k8s.io/api":                     string(v),
		"k8s.io/apimachinery":            string(v),
		"k8s.io/client-go":               string(v),
		"k8s.io/apiextensions-apiserver": string(v),
		"k8s.io/kube-aggregator":         string(v),
	} {
		dir, err := download(module, version)
		if err != nil {
			return nil, err
		}
		s[module] = dir
	}
	return s, nil
}

// download returns the folder of a module in the module cache. No go.mod requires the module.
func download(module, version string) (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", module+"@"+version)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "GO111MODULE=on", "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	var got struct{ Dir, Error string }
	if json.Unmarshal(out, &got) == nil && got.Error != "" {
		return "", errors.New(got.Error)
	}
	if err != nil {
		return "", fmt.Errorf("go mod download %s@%s: %w", module, version, err)
	}
	return got.Dir, nil
}

// mentions returns the lines of the repository that name a minor version of Kubernetes.
func mentions(dir string, v version) ([]string, error) {
	cmd := exec.Command("git", "grep", "-nwF", v.minor(), "--", ".",
		":!*.sum", ":!go.mod", ":!*/go.mod", ":!CHANGELOG.md", ":!*/testdata/*", ":!*zz_generated*")
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

func (s sources) open(module string, path ...string) ([]byte, error) {
	return os.ReadFile(filepath.Join(append([]string{s[module]}, path...)...))
}
