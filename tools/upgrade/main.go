// Upgrade moves the modules of kinproc to another version of Kubernetes, and lists what a person
// must decide then: see docs/upgrading.md. It reads the sources of both versions as text,
// k8s.io/kubernetes among them. It compiles none of them, so the list does not depend on whether
// kinproc compiles with the new version.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"
)

func main() {
	from := flag.String("from", "", "version that kinproc was at, such as 0.37.2; if empty, go.mod's")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: upgrade [-from VERSION] VERSION\n\n"+
			"With -from, it lists only.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(os.Stdout, "..", *from, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "upgrade:", err)
		os.Exit(1)
	}
}

// run raises the modules of the repository in dir, unless from is set, and lists the differences.
func run(w io.Writer, dir, from, to string) error {
	listOnly := from != ""
	if !listOnly {
		var err error
		if from, err = required(filepath.Join(dir, "go.mod"), "k8s.io/apiserver"); err != nil {
			return err
		}
	}
	before, after := newVersion(from), newVersion(to)
	for _, v := range []version{before, after} {
		if !semver.IsValid(string(v)) || semver.Major(string(v)) != "v0" {
			return fmt.Errorf("%q is not the version of a Kubernetes library, such as 0.38.0",
				strings.TrimPrefix(string(v), "v"))
		}
	}
	if !listOnly {
		if err := raise(w, dir, before, after); err != nil {
			return err
		}
	}
	return list(w, dir, before, after)
}

// A version is that of the libraries of a Kubernetes, such as v0.37.2.
type version string

func newVersion(s string) version { return version("v" + strings.TrimPrefix(s, "v")) }

// kubernetes returns the version of k8s.io/kubernetes, such as v1.37.2.
func (v version) kubernetes() string { return "v1" + strings.TrimPrefix(string(v), "v0") }

// minor returns the minor version of Kubernetes, such as 1.37.
func (v version) minor() string {
	return strings.TrimPrefix(semver.MajorMinor(v.kubernetes()), "v")
}

// before returns the first patch of the minor version before.
func (v version) before() version {
	var minor int
	if _, err := fmt.Sscanf(string(v), "v0.%d.", &minor); err != nil {
		return v
	}
	return version(fmt.Sprintf("v0.%d.0", minor-1))
}

// compareMinor compares minor versions such as 1.9 and 1.37.
func compareMinor(a, b string) int { return semver.Compare("v"+a, "v"+b) }
