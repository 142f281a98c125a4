package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func TestNewer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "go.mod")
	err := os.WriteFile(path, []byte(`module m

require (
	k8s.io/api v0.37.2
	k8s.io/klog/v2 v2.140.0
	go.etcd.io/etcd/server/v3 v3.7.3
	go.etcd.io/bbolt v1.5.0
	k8s.io/utils v0.0.1
)
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		to   version
		etcd string
		want []string
	}{
		// a later patch of etcd stays
		{"v0.38.0", "v3.7.0", []string{"k8s.io/api@v0.38.0", "k8s.io/utils@v0.0.2"}},
		{"v0.38.0", "v3.8.0", []string{
			"k8s.io/api@v0.38.0", "go.etcd.io/etcd/server/v3@v3.8.0", "k8s.io/utils@v0.0.2",
		}},
		{"v0.36.3", "v3.6.8", []string{
			"k8s.io/api@v0.36.3", "go.etcd.io/etcd/server/v3@v3.6.8", "k8s.io/utils@v0.0.2",
		}},
	} {
		got, err := newer(path, "v0.37.2", test.to, map[string]string{
			"go.etcd.io/etcd/server/v3": test.etcd, "k8s.io/utils": "v0.0.2", "go.etcd.io/bbolt": "v1.5.0",
		})
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("to %s with etcd %s: %v, %v, want %v", test.to, test.etcd, got, err, test.want)
		}
	}
}

func TestSetVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../server/globals.go")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "globals.go")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := setVersion(path, "v0.99.1"); err != nil {
		t.Fatal(err)
	}
	changed, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(changed), "\nconst KubernetesVersion = \"v1.99.1\"\n") ||
		len(strings.Split(string(changed), "\n")) != len(strings.Split(string(text), "\n")) {
		t.Errorf("%v\n%s", err, changed)
	}
	if err := setVersion("../../go.mod", "v0.99.1"); err == nil {
		t.Error("a file without the constant is changed")
	}
}

func TestRunRefusesOtherVersions(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"", "latest", "1.38.0", "v1.38.0"} {
		if err := run(os.Stdout, "../..", "0.37.2", to); err == nil {
			t.Errorf("run to %q succeeds", to)
		}
	}
}

// TestUpstream holds docs/upstream.md against the code and the libraries.
func TestUpstream(t *testing.T) {
	t.Parallel()
	const root = "../.."
	all, err := places(root)
	if err != nil {
		t.Fatal(err)
	}
	libraries, err := builtWith(root, "")
	if err != nil {
		t.Fatal(err)
	}
	tests := testsBelow(t, root)
	for _, p := range all {
		if _, err := os.Stat(filepath.Join(root, p.file)); err != nil {
			t.Error(err)
		}
		for _, symbol := range p.symbols {
			if source, err := libraries.source(symbol); err != nil || source == "" {
				t.Errorf("%s: there is no %s (%v)", p.file, symbol, err)
			}
		}
		for _, test := range p.tests {
			if !tests[test] {
				t.Errorf("%s: there is no test %s", p.file, test)
			}
		}
	}
}

var test = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

func testsBelow(t *testing.T, root string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range test.FindAllStringSubmatch(string(text), -1) {
			found[match[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestSource(t *testing.T) {
	t.Parallel()
	libraries, err := builtWith("../..", "")
	if err != nil {
		t.Fatal(err)
	}
	for symbol, want := range map[string]string{
		"net/http.MethodGet":         `MethodGet = "GET"`,
		"net/http.Request.ctx":       "context.Context", // an unexported field
		"net/http.Handler.ServeHTTP": "func(ResponseWriter, *Request)",
		"net/http.HandlerFunc":       "HandlerFunc func(ResponseWriter, *Request)",
		"net/http.HandlerFunc.ServeHTTP": "func (f HandlerFunc) ServeHTTP(w ResponseWriter, r *Request) " +
			"{ f(w, r) }",
		"net/http.noSuchThing":          "",
		"net/http.Request.noSuchThing":  "",
		"net/nosuchpackage.Request":     "",
		"k8s.io/api/core/v1.Pod.Spec":   "PodSpec",
		"k8s.io/api/core/v1.Pod.Spec2":  "",
		"k8s.io/api/core/v77.Pod":       "",
		"example.com/not/required.Type": "",
	} {
		if got, err := libraries.source(symbol); err != nil || got != want {
			t.Errorf("source of %s: %q, %v, want %q", symbol, got, err, want)
		}
	}
}
