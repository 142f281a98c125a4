package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// facts are what a version of Kubernetes says about something, by the name of what it is about.
type facts map[string]string

// A reader finds one sort of facts.
type reader struct {
	read func(sources, version) (facts, error)
	// join, if set, makes fewer lines of what belongs together.
	join func(lines []string, before, after facts) []string
}

// A section of the list compares some sorts of facts.
type section struct {
	title string
	// decide says what to do about a difference.
	decide  string
	readers []reader
}

// rules are the packages with rules of kinds.
var rules = []string{
	"k8s.io/kubernetes/pkg/api", "k8s.io/kubernetes/pkg/apis/*/validation",
	"k8s.io/kubernetes/pkg/registry",
}

func sections() []section {
	return []section{
		{
			"Resources and subresources",
			"their declarations, the Makefile's OPENAPI_PACKAGES, the bootstrap roles",
			[]reader{{resources, nil}},
		},
		{
			"Fields", "validation, rules of updates, what is cleared without a gate",
			[]reader{{fields, byType}},
		},
		{
			"Constants", "validation of the fields that have such values, and what acts on them",
			[]reader{{constants, bySubject}},
		},
		{
			"Default values", "the defaults of the declarations",
			[]reader{{defaults, bySubject}, {defaultTags, nil}},
		},
		{
			"Validation tags", "hand-written rules of the same fields",
			[]reader{{tags, bySubject}},
		},
		{
			"Rules", "validation, rules of updates, and what else a declaration does",
			[]reader{
				{declarations(rules...), byFolder}, {messages(rules...), bySubject},
			},
		},
		{
			"Libraries", "what corrects them here, such as chain/bodies.go",
			[]reader{
				{declarations(
					"k8s.io/apiserver/pkg/endpoints/handlers", "k8s.io/apiserver/pkg/registry",
					"k8s.io/apiserver/pkg/server/*z", "k8s.io/component-base/zpages",
				), byFolder},
			},
		},
		{
			"Feature gates", "chain/features, and server/internal/featuregates with its testdata",
			[]reader{{gates, nil}, {clientGates, nil}},
		},
		{
			"Places that ask a gate", "what the place does now that the gate has another default",
			[]reader{{askers, switched}},
		},
		{
			"Flags", "server, and server/cli/internal/standin with its testdata",
			[]reader{
				{flags("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver/app/options"), nil},
				{flags("kube-apiserver", "k8s.io/kubernetes/pkg/kubeapiserver/options"), nil},
				{flags("kube-apiserver", "k8s.io/kubernetes/pkg/controlplane/apiserver/options"), nil},
				{flags("kube-apiserver", "k8s.io/kubernetes/plugin/pkg/admission"), nil},
				{flags("kube-apiserver", "k8s.io/apiserver/pkg/server/options"), nil},
				{flags("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"), nil},
				{flags("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"), nil},
				{flags("a library", "k8s.io/component-base/"), nil},
				{declarations(
					"k8s.io/kubernetes/cmd/kube-[acs]*/app/options",
					"k8s.io/kubernetes/pkg/kubeapiserver/options",
					"k8s.io/kubernetes/pkg/controlplane/apiserver/options",
					"k8s.io/apiserver/pkg/server/options",
				), byFolder},
			},
		},
		{
			"Bootstrap roles", "server/internal/auth/rbacauthorizer",
			[]reader{{roles, bySubject}},
		},
		{
			"Printer columns", "the columns of the declarations, and what fills their cells",
			[]reader{
				{columns("k8s.io/kubernetes/pkg/printers/internalversion"), bySubject},
				{columns("k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition",
					"k8s.io/kube-aggregator/pkg/registry/apiservice"), bySubject},
				{declarations("k8s.io/kubernetes/pkg/printers"), byFolder},
			},
		},
		{
			"Admission plugins", "server/internal/admission, and its order",
			[]reader{
				{plugins, nil},
				{declarations("k8s.io/kubernetes/plugin/pkg/admission"), byFolder},
				{messages("k8s.io/kubernetes/plugin/pkg/admission"), bySubject},
			},
		},
		{
			"Control loops", "server/internal/controllers, and its list",
			[]reader{
				{loops, nil},
				{declarations("k8s.io/kubernetes/pkg/controller"), byFolder},
				{messages("k8s.io/kubernetes/pkg/controller"), bySubject},
			},
		},
		{
			"Scheduler", "server/internal/controllers/nodes/scheduler",
			[]reader{
				{schedulerPlugins, nil}, {defaultPlugins, bySubject},
				{declarations("k8s.io/kubernetes/pkg/scheduler"), byFolder},
				{messages("k8s.io/kubernetes/pkg/scheduler"), bySubject},
			},
		},
	}
}

// list compares two versions of Kubernetes, and prints the differences. It fails after it has
// printed all of them, if it may have missed some.
func list(w io.Writer, dir string, from, to version) error {
	fetched := cache{}
	fmt.Fprintf(w, "\nFrom Kubernetes %s to %s: + is new, - is gone, ~ differs.\n",
		from.kubernetes(), to.kubernetes())
	missed := listSections(w, fetched.fetch, from, to)
	for _, part := range []struct {
		title, decide string
		lines         func() ([]string, error)
	}{
		{
			"Control loops that are named nowhere here", "docs/compatibility.md",
			func() ([]string, error) { return unnamed(dir, fetched.fetch, to) },
		},
		{
			"Symbols of docs/upstream.md", "what the place must do now",
			func() ([]string, error) { return changed(dir, from, to) },
		},
		{
			"Lines that name " + from.minor(), "what is true of " + to.minor(),
			func() ([]string, error) { return mentions(dir, from) },
		},
	} {
		lines, err := part.lines()
		if err != nil {
			err = fmt.Errorf("section %q: %w", part.title, err)
			missed = append(missed, err)
		}
		printSection(w, part.title, part.decide, lines, err)
	}
	return errors.Join(missed...)
}

// listSections prints the sections, and returns why the list may lack something.
func listSections(w io.Writer, fetch func(version) (sources, error), from, to version) []error {
	var missed []error
	for _, s := range sections() {
		lines, err := s.compare(fetch, from, to)
		if err == nil && len(lines) == 0 {
			err = s.mayBeEmpty(fetch, from, to)
		}
		if err != nil {
			err = fmt.Errorf("section %q: %w", s.title, err)
			missed = append(missed, err)
		}
		printSection(w, s.title, s.decide, lines, err)
	}
	return missed
}

func printSection(w io.Writer, title, decide string, lines []string, err error) {
	fmt.Fprintf(w, "\n%s (%d; look at: %s)\n", title, len(lines), decide)
	for _, line := range lines {
		fmt.Fprintln(w, " ", line)
	}
	if err != nil {
		fmt.Fprintln(w, "  INCOMPLETE:", err)
	}
}

// compare returns a line for each difference. The lines are all that could be found if there is an
// error.
func (s section) compare(fetch func(version) (sources, error), from, to version) ([]string, error) {
	before, err := fetch(from)
	if err != nil {
		return nil, err
	}
	after, err := fetch(to)
	if err != nil {
		return nil, err
	}
	var lines []string
	var missed []error
	for _, r := range s.readers {
		then, err := r.read(before, from)
		if err != nil {
			missed = append(missed, fmt.Errorf("in %s: %w", from.kubernetes(), err))
			continue
		}
		now, err := r.read(after, to)
		if err != nil {
			missed = append(missed, fmt.Errorf("in %s: %w", to.kubernetes(), err))
			continue
		}
		// Fewer than half are not a change, but another form of the source.
		if len(then) == 0 || len(now) == 0 || len(now) < len(then)/2 {
			missed = append(missed, fmt.Errorf("%d entries are found in %s, but %d in %s: look where "+
				"they have moved to, and mend what reads them in tools/upgrade", len(then),
				from.kubernetes(), len(now), to.kubernetes()))
		}
		found := differences(then, now)
		if r.join != nil {
			found = r.join(found, then, now)
		}
		lines = append(lines, found...)
	}
	return lines, errors.Join(missed...)
}

// mayBeEmpty reports an error if a section has no differences between two minor versions, although
// it had some in both of the steps before.
func (s section) mayBeEmpty(fetch func(version) (sources, error), from, to version) error {
	if from.minor() == to.minor() {
		return nil
	}
	for range 2 {
		to, from = from, from.before()
		lines, err := s.compare(fetch, from, to)
		if err != nil {
			return err
		}
		if len(lines) == 0 {
			return nil
		}
	}
	return errors.New("nothing differs, although something did in the last two versions: mend what " +
		"reads it in tools/upgrade")
}

// bySubject makes one line of those that have the same first word.
func bySubject(lines []string, _, _ facts) []string {
	return joined(lines, func(line string) (string, string) {
		subject, rest, _ := strings.Cut(line[2:], " ")
		return subject, line[:2] + rest
	})
}

// byFolder makes one line of the names in a folder, and leaves their values out.
func byFolder(lines []string, _, _ facts) []string {
	return joined(lines, func(line string) (string, string) {
		words := strings.Fields(line[2:])
		return words[0], line[:2] + words[1]
	})
}

func joined(lines []string, split func(string) (subject, rest string)) []string {
	var all []string
	of := map[string]int{}
	for _, line := range lines {
		subject, rest := split(line)
		if at, ok := of[subject]; ok {
			all[at] += ", " + rest
			continue
		}
		of[subject] = len(all)
		all = append(all, "~ "+subject+": "+rest)
	}
	return all
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
