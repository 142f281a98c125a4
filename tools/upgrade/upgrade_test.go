package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// write writes files into a new folder for each module, as the module cache has them.
func write(t *testing.T, modules map[string]map[string]string) sources {
	t.Helper()
	s := sources{}
	root := t.TempDir()
	for _, module := range []string{
		"k8s.io/kubernetes", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go",
		"k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator",
	} {
		s[module] = filepath.Join(root, module)
		for _, dir := range []string{"meta", "apiextensions", "apiregistration"} {
			err := os.MkdirAll(filepath.Join(s[module], "pkg", "apis", dir, "v1"), 0o700)
			if err != nil {
				t.Fatal(err)
			}
		}
		for path, content := range modules[module] {
			path = filepath.Join(s[module], path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

const (
	discovery   = "api/discovery/aggregated_v2.json"
	gateList    = "test/compatibility_lifecycle/reference/versioned_feature_list.yaml"
	pluginList  = "pkg/kubeapiserver/options/plugins.go"
	loopList    = "cmd/kube-controller-manager/names/controller_names.go"
	clientGates = "features/known_features.go"
)

// discoveryOfApps returns a discovery document of the group apps.
func discoveryOfApps(resources string) string {
	return `{"items": [{"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [` +
		resources + `]}]}]}`
}

const gatesOfBoth = `
- name: Ripens
  versionedSpecs:
  - {default: false, preRelease: Alpha, version: "1.9"}
  - {default: true, preRelease: Beta, version: "1.37"}
- name: Stays
  versionedSpecs:
  - {default: true, preRelease: GA, version: "1.9"}
`

func TestDifferences(t *testing.T) {
	t.Parallel()
	before := write(t, map[string]map[string]string{
		"k8s.io/kubernetes": {
			discovery: discoveryOfApps(`
				{"resource": "deployments", "responseKind": {"kind": "Deployment"}, "scope": "Namespaced",
				"verbs": ["list", "get"]},
				{"resource": "old", "responseKind": {"kind": "Old"}, "scope": "Cluster", "verbs": ["get"]}
			`),
			gateList: gatesOfBoth,
			pluginList: `package options

var AllOrderedPlugins = []string{
	admit.PluginName, // AlwaysAdmit
	deny.PluginName, // AlwaysDeny
}

var others = []string{
	other.PluginName,
}
`,
			loopList: `package names

const Job = "job-controller"
`,
		},
		"k8s.io/client-go": {clientGates: `
	OfClients: {
		{Version: version.MustParse("1.36"), Default: true, PreRelease: Beta},
	},
`},
		"k8s.io/api": {"apps/v1/types.go": `package v1

type DeploymentSpec struct {
	// +k8s:optional
	Replicas *int32 ` + "`json:\"replicas,omitempty\"`" + `
	// +k8s:required
	// +k8s:minimum=1
	Gone string ` + "`json:\"gone\"`" + `
}

type Strategy string

const Recreate Strategy = "Recreate"
`},
	})
	after := write(t, map[string]map[string]string{
		"k8s.io/kubernetes": {
			discovery: discoveryOfApps(`
				{"resource": "deployments", "responseKind": {"kind": "Deployment"}, "scope": "Namespaced",
				"verbs": ["get", "list"], "shortNames": ["deploy"], "subresources": [
					{"subresource": "scale", "responseKind": {"kind": "Scale"}, "verbs": ["get"]}
				]}
			`),
			gateList: gatesOfBoth + `
- name: Later
  versionedSpecs:
  - {default: true, preRelease: Beta, version: "1.38"}
`,
			pluginList: `package options

var AllOrderedPlugins = []string{
	admit.PluginName, // AlwaysAdmit
	newer.PluginName,
	deny.PluginName, // AlwaysDeny
}
`,
			loopList: `package names

const (
	Job   = "job-controller"
	Newer = "newer-controller"
)
`,
		},
		"k8s.io/client-go": {clientGates: `
	OfClients: {
		{Version: version.MustParse("1.36"), Default: true, PreRelease: Beta},
		{Version: version.MustParse("1.37"), Default: true, PreRelease: GA, LockToDefault: true},
	},
`},
		"k8s.io/api": {
			"apps/v1/types.go": `package v1

type DeploymentSpec struct {
	// +k8s:optional
	// +k8s:minimum=0
	Replicas *int64 ` + "`json:\"replicas,omitempty\"`" + `
	// +featureGate=Ripens
	Pace *Pace ` + "`json:\"pace\"`" + `
}

// +k8s:openapi-gen=true
type Pace struct {
	Seconds int ` + "`json:\"seconds\"`" + `
}

type Strategy string

const (
	Recreate Strategy = "Recreate"
	Roll     Strategy = "Roll"
)
`,
			"apps/v1/zz_generated.go": "package v1\n\ntype Ignored struct{ A int `json:\"a\"` }\n",
		},
	})
	want := map[string][]string{
		"Resources and subresources": {
			"~ apps/v1 deployments Deployment Namespaced get,list → " +
				"Deployment Namespaced get,list short deploy",
			"+ apps/v1 deployments/scale Scale get",
			"- apps/v1 old",
		},
		"Fields": {
			"- apps/v1.DeploymentSpec.gone",
			"+ apps/v1.DeploymentSpec.pace *Pace +featureGate=Ripens",
			"~ apps/v1.DeploymentSpec.replicas *int32 → *int64",
			"+ apps/v1.Pace, a type with 1 fields",
		},
		"Constants": {`~ apps/v1.Strategy: + "Roll"`},
		"Validation tags": {
			"~ apps/v1.DeploymentSpec.gone: - +k8s:minimum=1, - +k8s:required",
			"~ apps/v1.DeploymentSpec.replicas: + +k8s:minimum=0",
		},
		"Feature gates": {
			"~ OfClients Beta true → GA true locked", "~ Ripens Alpha false → Beta true",
		},
		"Admission plugins": {"~ AlwaysDeny after AlwaysAdmit → after newer", "+ newer after AlwaysAdmit"},
		"Control loops":     {"+ newer-controller"},
	}
	for _, s := range sections() {
		got, err := s.compare(before, after, "v0.36.0", "v0.37.0")
		if err != nil || !slices.Equal(got, want[s.title]) {
			t.Errorf("%s: %v\ngot  %q\nwant %q", s.title, err, got, want[s.title])
		}
	}
	if _, err := sections()[0].compare(before, sources{}, "v0.36.0", "v0.37.0"); err == nil {
		t.Error("a version without discovery documents is compared")
	}
}

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
