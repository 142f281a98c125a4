package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// resources reads the discovery documents of a kube-apiserver with everything on.
func resources(s sources, _ version) (facts, error) {
	data, err := s.open("k8s.io/kubernetes", "api", "discovery", "aggregated_v2.json")
	if err != nil {
		return nil, err
	}
	type resource struct {
		Resource, Subresource, Scope  string
		ResponseKind                  struct{ Group, Version, Kind string }
		Verbs, ShortNames, Categories []string
		Subresources                  []resource
	}
	var document struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct {
				Version   string
				Resources []resource
			}
		}
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	found := facts{}
	describe := func(r resource) string {
		slices.Sort(r.Verbs)
		parts := []string{r.ResponseKind.Kind, r.Scope, strings.Join(r.Verbs, ",")}
		if len(r.ShortNames) > 0 {
			parts = append(parts, "short "+strings.Join(r.ShortNames, ","))
		}
		if len(r.Categories) > 0 {
			parts = append(parts, "in "+strings.Join(r.Categories, ","))
		}
		return strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
	}
	for _, group := range document.Items {
		for _, v := range group.Versions {
			for _, r := range v.Resources {
				name := group.Metadata.Name + "/" + v.Version + " " + r.Resource
				found[name] = describe(r)
				for _, sub := range r.Subresources {
					found[name+"/"+sub.Subresource] = describe(sub)
				}
			}
		}
	}
	return found, nil
}

// A stage is what a feature gate is from a version on.
type stage struct {
	Default       bool
	LockToDefault bool   `yaml:"lockToDefault"`
	PreRelease    string `yaml:"preRelease"`
	Version       string
}

// gates reads the feature gates of all components and of client-go, with what they are in a
// version.
func gates(s sources, v version) (facts, error) {
	data, err := s.open("k8s.io/kubernetes", "test", "compatibility_lifecycle", "reference",
		"versioned_feature_list.yaml")
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
	data, err = s.open("k8s.io/client-go", "features", "known_features.go")
	if err != nil {
		return nil, err
	}
	for _, gate := range clientGate.FindAllStringSubmatch(string(data), -1) {
		for _, m := range clientStage.FindAllStringSubmatch(gate[2], -1) {
			stages[gate[1]] = append(stages[gate[1]], stage{
				Version: m[1], Default: m[2] == "true", PreRelease: m[3], LockToDefault: m[4] != "",
			})
		}
	}
	found := facts{}
	for name, all := range stages {
		for _, stage := range all { // in the order of the versions
			if compareMinor(stage.Version, v.minor()) > 0 {
				continue
			}
			found[name] = fmt.Sprintf("%s %t", stage.PreRelease, stage.Default)
			if stage.LockToDefault {
				found[name] += " locked"
			}
		}
	}
	return found, nil
}

var (
	clientGate  = regexp.MustCompile(`(?m)^\t(\w+): \{\n((?:\t\t\{Version: .*\n)+)`)
	clientStage = regexp.MustCompile(`Version: version\.MustParse\("([\d.]+)"\), ` +
		`Default: (\w+), PreRelease: (\w+)(, LockToDefault: true)?`)
)

var plugin = regexp.MustCompile(`(?m)^\t(\w+)\.PluginName,(?:\s*// (\w+))?`)

// plugins reads the admission plugins of kube-apiserver, and which one each of them follows.
func plugins(s sources, _ version) (facts, error) {
	data, err := s.open("k8s.io/kubernetes", "pkg", "kubeapiserver", "options", "plugins.go")
	if err != nil {
		return nil, err
	}
	_, text, _ := strings.Cut(string(data), "AllOrderedPlugins")
	text, _, _ = strings.Cut(text, "\n}")
	found := facts{}
	previous := "nothing"
	for _, match := range plugin.FindAllStringSubmatch(text, -1) {
		name := match[2]
		if name == "" {
			name = match[1]
		}
		found[name] = "after " + previous
		previous = name
	}
	return found, nil
}

// loops reads the names of the loops of kube-controller-manager.
func loops(s sources, _ version) (facts, error) {
	files, err := parseDir(s["k8s.io/kubernetes"] + "/cmd/kube-controller-manager/names")
	if err != nil {
		return nil, err
	}
	found := facts{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok {
				found[strings.Trim(literal.Value, `"`)] = ""
			}
			return true
		})
	}
	return found, nil
}
