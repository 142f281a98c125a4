package settings

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/serverflags"
)

// startFlags returns flags like those of kinproc start.
func startFlags() (*pflag.FlagSet, *server.Options) {
	o := &server.Options{SimulatedNodes: 1, SecurePort: 6443}
	var sections cliflag.NamedFlagSets
	serverflags.Add(o, &sections)
	flags := pflag.NewFlagSet("start", pflag.ContinueOnError)
	for _, set := range sections.FlagSets {
		flags.AddFlagSet(set)
	}
	flags.String("name", "", "")
	flags.String("config", "", "")
	flags.Bool("detach", false, "")
	return flags, o
}

func given(t *testing.T, flags *pflag.FlagSet, args ...string) map[string][]string {
	t.Helper()
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	given, err := givenFlags(flags, args)
	if err != nil {
		t.Fatal(err)
	}
	return given
}

func read(t *testing.T, text string) *File {
	t.Helper()
	file, err := ReadFile("kinproc.yaml", []byte(text),
		func(string, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A flag comes before the file, the file before what is remembered, and that before the defaults.
func TestInForce(t *testing.T) {
	t.Parallel()
	memory := Memory{Flags: map[string][]string{
		"simulate-nodes": {"5"}, "event-ttl": {"2h"}, "feature-gates": {"A=true"},
		"service-account-key-file": {"/a", "/b"}, "of-another-version": {"x"}, "detach": {"true"},
	}}
	file := read(t, "nodes: 3\nfeatureGates: {B: true}\ncontrollers: ['*', -x]\n")
	flags, o := startFlags()
	all, err := inForce(flags, given(t, flags, "--simulate-nodes", "7", "--detach"), file,
		memory)
	if err != nil {
		t.Fatal(err)
	}
	want := []Setting{
		{Flag: "controllers", Value: "*,-x", Source: fromFile},
		{Flag: "event-ttl", Value: "2h", Source: fromMemory},
		{Flag: "feature-gates", Value: "B=true", Source: fromFile},
		{Flag: "service-account-key-file", Value: "/a,/b", Source: fromMemory},
		{Flag: "simulate-nodes", Value: "7", Source: fromFlag},
	}
	if !slices.Equal(all, want) {
		t.Errorf("in force are %v, want %v", all, want)
	}
	if o.SimulatedNodes != 7 || o.EventTTL.Hours() != 2 || len(o.FeatureGates) != 1 ||
		!o.FeatureGates["B"] || !slices.Equal(o.ServiceAccountKeyFiles, []string{"/a", "/b"}) ||
		!slices.Equal(o.Controllers, []string{"*", "-x"}) {
		t.Errorf("the options are %+v", o)
	}
}

// With kinds of nodes, there are no others unless somebody asks for them.
func TestKindsReplaceTheDefaultNode(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"nodeKinds: [{name: gpu}]":             0,
		"nodeKinds: [{name: gpu}]\nnodes: 2":   2,
		"nodeKinds: [{name: gpu, count: 0}]\n": 0,
		"nodeKinds: []":                        1,
	} {
		flags, o := startFlags()
		if _, err := inForce(flags, nil, read(t, text), Memory{}); err != nil {
			t.Fatal(err)
		}
		if o.SimulatedNodes != want {
			t.Errorf("%s: %d nodes, want %d", text, o.SimulatedNodes, want)
		}
	}
}

func TestLearn(t *testing.T) {
	t.Parallel()
	flags, _ := startFlags()
	m := Memory{Flags: map[string][]string{"simulate-nodes": {"5"}, "event-ttl": {"2h"}}}
	before := m
	if err := m.learn(flags, given(t, flags, "--simulate-nodes=2", "--detach", "--data-dir=x",
		"--kubelet-timeout=5s", "--token-auth-file=tokens", "--audit-log-path=-", "--read-only",
		"--service-account-key-file=a", "--service-account-key-file=b")); err != nil {
		t.Fatal(err)
	}
	path := func(name string) string {
		absolute, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		return absolute
	}
	want := map[string][]string{
		"simulate-nodes": {"2"}, "event-ttl": {"2h"}, "token-auth-file": {path("tokens")},
		"audit-log-path": {"-"}, "read-only": {"true"},
		"service-account-key-file": {path("a"), path("b")},
	}
	if fmt.Sprint(m.Flags) != fmt.Sprint(want) {
		t.Errorf("learnt %v, want %v", m.Flags, want)
	}
	if before.Flags["simulate-nodes"][0] != "5" {
		t.Error("the memory before has changed")
	}
}

// Whoever adds a flag that names files adds it here: they are remembered with absolute paths.
func TestFlagsWithPaths(t *testing.T) {
	t.Parallel()
	want := strings.Fields(`admission-control-config-file audit-log-path audit-policy-file
		audit-webhook-config-file authentication-config authentication-token-webhook-config-file
		authorization-config authorization-webhook-config-file cert-dir client-ca-file config
		encryption-provider-config etcd-cafile etcd-certfile etcd-keyfile oidc-ca-file pki-dir
		proxy-client-cert-file proxy-client-key-file requestheader-client-ca-file
		service-account-key-file service-account-signing-key-file simulated-log-dir tls-cert-file
		tls-private-key-file token-auth-file`)
	flags, _ := startFlags()
	var got []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !isRemembered(f) {
			return
		}
		m := Memory{}
		if err := m.learn(flags, map[string][]string{f.Name: {"x"}}); err != nil {
			t.Fatal(err)
		}
		if filepath.IsAbs(m.Flags[f.Name][0]) {
			got = append(got, f.Name)
		}
	})
	if !slices.Equal(got, want) {
		t.Errorf("remembered with absolute paths are %q, want %q", got, want)
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	file := read(t, `# A cluster with graphics cards.
nodes: 2
nodeKinds:
- name: gpu
  count: 3
  labels: &labels {accelerator: a100}
  taints: [nvidia.com/gpu=present:NoSchedule, spot:NoExecute]
  capacity: {cpu: 64, nvidia.com/gpu: 8}
- name: other
  labels: *labels
manifests:
- crds
- web.yaml
`)
	if len(file.Kinds) != 2 {
		t.Fatalf("kinds: %v", file.Kinds)
	}
	gpu, other := file.Kinds[0], file.Kinds[1]
	if gpu.Name != "gpu" || gpu.Count != 3 || gpu.Labels["accelerator"] != "a100" ||
		gpu.Capacity.Cpu().Value() != 64 || len(gpu.Capacity) != 2 ||
		!slices.Equal(gpu.Taints, []corev1.Taint{
			{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule},
			{Key: "spot", Effect: corev1.TaintEffectNoExecute},
		}) {
		t.Errorf("the first kind is %+v", gpu)
	}
	if other.Count != 1 || other.Labels["accelerator"] != "a100" {
		t.Errorf("the second kind is %+v", other)
	}
	if want := []Manifest{{"crds", 12}, {"web.yaml", 13}}; !slices.Equal(file.Manifests, want) {
		t.Errorf("the manifests are %v", file.Manifests)
	}
	for _, empty := range []string{"", "# nothing\n", "null\n", "nodes: 1\n---\n"} {
		_, err := ReadFile("f", []byte(empty), func(string, string) error { return nil })
		if (err != nil) != strings.Contains(empty, "---") {
			t.Errorf("%q: %v", empty, err)
		}
	}
}

func TestMistakesInFile(t *testing.T) {
	t.Parallel()
	check := func(flag, value string) error {
		if strings.Contains(value, "bad") {
			return errors.New("it is bad")
		}
		return nil
	}
	for text, want := range map[string]string{
		"nods: 3":                                   "f:1: there is no field nods; did you mean nodes?",
		"\nx: 3":                                    "f:2: there is no field x; the fields are name, port, kubernetes, nodes, nodeCap",
		"nodes: 1\nnodes: 2":                        "f:2: nodes is already set in line 1",
		"nodes: [1]":                                "f:1: nodes: it must be a word or a number",
		"nodes:":                                    "f:1: nodes: it must be a word or a number",
		"name: bad":                                 "f:1: name: it is bad",
		"dashboard: bad":                            "f:1: dashboard: it is bad",
		"- nodes":                                   "f:1: the file: it must be a mapping",
		"nodes: 1\n  name: x":                       "f:2: it is not YAML: mapping values are not allowed",
		"port: 70000":                               "f:1: port: \"70000\" is not between 1 and 65535",
		"a: 1\n---\nb: 2":                           "f:2: there is more than one document",
		"controllers: '*'":                          "f:1: controllers: it must be a list",
		"controllers:\n- '*'\n- bad":                "f:3: controllers[1]: it is bad",
		"controllers: ['a,b']":                      "f:1: controllers[0]: \"a,b\" must be one name",
		"featureGates:\n  bad: true":                "f:2: featureGates.bad: it is bad",
		"featureGates:\n  A: maybe":                 "f:2: featureGates.A: \"maybe\" is neither true nor false",
		"admissionPlugins: {enabl: [a]}":            "f:1: there is no field admissionPlugins.enabl; did you mean",
		"nodeKinds:\n- count: 1":                    "f:2: nodeKinds[0]: it needs a name",
		"nodeKinds:\n- name: A_":                    "f:2: nodeKinds[0].name: \"A_\" is not a name of a kind",
		"nodeKinds:\n- name: a\n- name: a\n":        "f:3: nodeKinds[1]: there is already a kind of nodes named a",
		"nodeKinds: [{name: a, count: -1}]":         "f:1: nodeKinds[0].count: \"-1\" is not a number",
		"nodeKinds: [{name: a, label: {}}]":         "f:1: there is no field nodeKinds[0].label; did you",
		"nodeKinds:\n- name: a\n  labels: {a b: c}": "f:3: nodeKinds[0].labels: \"a b\" is not a key of a",
		"nodeKinds: [{name: a, labels: {kubernetes.io/hostname: c}}]": "f:1: nodeKinds[0].labels: the " +
			"label kubernetes.io/hostname is the node's own",
		"nodeKinds: [{name: a, taints: [b]}]": "f:1: nodeKinds[0].taints[0]: \"b\" is not of the form",
		"nodeKinds: [{name: a, taints: ['b:NoSchedul']}]": "f:1: nodeKinds[0].taints[0]: \"NoSchedul\" is " +
			"not an effect of a taint; did you mean NoSchedule?",
		"nodeKinds: [{name: a, capacity: {cpu: x}}]": "f:1: nodeKinds[0].capacity.cpu: \"x\" is not a " +
			"quantity, such as 500m or 32Gi",
		"nodeKinds: [{name: a, capacity: {example.com/gpu: 500m}}]": "f:1: nodeKinds[0].capacity: the " +
			"capacity of example.com/gpu, 500m, is not a whole number",
		"manifests: [[a]]": "f:1: manifests[0]: it must be a word",
		"a: &a [*a]":       "f:1: ",
		"\tx":              "f:1: it is not YAML",
	} {
		_, err := ReadFile("f", []byte(text), check)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func FuzzReadFile(f *testing.F) {
	f.Add("nodes: 3\nnodeKinds:\n- {name: a, taints: ['a:NoSchedule'], capacity: {cpu: 1}}\n")
	f.Add("a: &a {b: *a}\ncontrollers: [*a]\n<<: *a\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := ReadFile("f", []byte(text), func(string, string) error { return nil })
		if err != nil && !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("%v", err)
		}
	})
}
