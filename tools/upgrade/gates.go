package main

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A stage is what a feature gate is from a version on.
type stage struct {
	Default       bool
	LockToDefault bool   `yaml:"lockToDefault"`
	PreRelease    string `yaml:"preRelease"`
	Version       string
}

// gates reads the feature gates of all components, with what they are in a version.
func gates(s sources, v version) (facts, error) {
	data, err := s.open("k8s.io/kubernetes",
		"test/compatibility_lifecycle/reference/versioned_feature_list.yaml")
	if err != nil {
		return nil, err
	}
	var list []struct {
		Name   string
		Stages []stage `yaml:"versionedSpecs"`
	}
	if err := yaml.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	stages := map[string][]stage{}
	for _, gate := range list {
		stages[gate.Name] = gate.Stages
	}
	return in(stages, v), nil
}

// clientGates reads the feature gates of client-go.
func clientGates(s sources, v version) (facts, error) {
	file, err := s.parseFile("k8s.io/client-go", "features/known_features.go")
	if err != nil {
		return nil, err
	}
	stages := map[string][]stage{}
	for _, gate := range elements(valueOf(file, "defaultVersionedKubernetesFeatureGates")) {
		gate, ok := gate.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		for _, specification := range elements(gate.Value) {
			of := keyed(specification)
			call, ok := of["Version"].(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return nil, fmt.Errorf("the gate %s has no version", source(gate.Key))
			}
			version, err := strconv.Unquote(source(call.Args[0]))
			if err != nil {
				return nil, fmt.Errorf("the version of gate %s: %w", source(gate.Key), err)
			}
			stages[source(gate.Key)] = append(stages[source(gate.Key)], stage{
				Version: version, Default: source(of["Default"]) == "true",
				PreRelease: source(of["PreRelease"]), LockToDefault: source(of["LockToDefault"]) == "true",
			})
		}
	}
	return in(stages, v), nil
}

// in returns what gates are in a version. Their stages are in the order of the versions.
func in(stages map[string][]stage, v version) facts {
	found := facts{}
	for name, all := range stages {
		for _, stage := range all {
			if compareMinor(stage.Version, v.minor()) > 0 {
				continue
			}
			found[name] = fmt.Sprintf("%s %t", stage.PreRelease, stage.Default)
			if stage.LockToDefault {
				found[name] += " locked"
			}
		}
	}
	return found
}

// asked matches what a gate is called where it is asked.
var asked = regexp.MustCompile(`\b\w*[fF]eatures\.([A-Z]\w+)`)

// asks returns the gates that a text names, with "on" or "off".
func asks(text string, gates facts) facts {
	found := facts{}
	for _, match := range asked.FindAllStringSubmatch(text, -1) {
		if state, ok := gates[match[1]]; ok {
			found[match[1]] = onOrOff(state)
		}
	}
	return found
}

func onOrOff(state string) string {
	if strings.Contains(state, " true") {
		return "on"
	}
	return "off"
}

// askers reads the default of each gate that packages ask, and which ones do. Those of programs
// that run on nodes are left out.
func askers(s sources, v version) (facts, error) {
	known, err := gates(s, v)
	if err != nil {
		return nil, err
	}
	clients, err := clientGates(s, v)
	if err != nil {
		return nil, err
	}
	maps.Copy(known, clients)
	packages := map[string]map[string]bool{}
	for _, at := range [][2]string{
		{"k8s.io/kubernetes", "pkg"}, {"k8s.io/kubernetes", "plugin"}, {"k8s.io/kubernetes", "cmd"},
		{"k8s.io/apiserver", "pkg"}, {"k8s.io/client-go", ""}, {"k8s.io/apiextensions-apiserver", "pkg"},
		{"k8s.io/kube-aggregator", "pkg"},
	} {
		err := s.folders(at[0], at[1], func(dir string) error {
			if slices.ContainsFunc(nodes, func(of string) bool { return dir == of || within(dir, of) }) {
				return nil
			}
			entries, err := os.ReadDir(filepath.Join(s[at[0]], dir))
			for _, e := range entries {
				if e.IsDir() || !written(e.Name()) {
					continue
				}
				text, err := s.open(at[0], dir+"/"+e.Name())
				if err != nil {
					return err
				}
				for gate := range asks(string(text), known) {
					if packages[gate] == nil {
						packages[gate] = map[string]bool{}
					}
					packages[gate][strings.TrimPrefix(at[0], "k8s.io/")+"/"+dir] = true
				}
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	found := facts{}
	for gate, of := range packages {
		found[gate] = onOrOff(known[gate]) + ": " + strings.Join(slices.Sorted(maps.Keys(of)), ", ")
	}
	return found, nil
}

// switched keeps the lines of gates that have another default, and of new ones that are on.
func switched(_ []string, before, after facts) []string {
	var lines []string
	for _, gate := range slices.Sorted(maps.Keys(after)) {
		then, _, _ := strings.Cut(before[gate], ":")
		now, places, _ := strings.Cut(after[gate], ":")
		switch {
		case then == "" && now == "on":
			lines = append(lines, "+ "+gate+" on:"+places)
		case then != "" && then != now:
			lines = append(lines, "~ "+gate+" "+then+" → "+now+":"+places)
		}
	}
	return lines
}

// nodes are the folders of programs that run on nodes.
var nodes = []string{
	"pkg/kubelet", "pkg/proxy", "pkg/volume", "cmd/kubelet", "cmd/kube-proxy", "cmd/kubeadm",
	"pkg/kubemark", "pkg/features",
}
