package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// sources are the folders of the modules of one version of Kubernetes, by module.
type sources map[string]string

// A cache has the sources of versions that were fetched.
type cache map[version]sources

// fetch downloads what the sections read.
func (c cache) fetch(v version) (sources, error) {
	if s, ok := c[v]; ok {
		return s, nil
	}
	s := sources{}
	for module, version := range map[string]string{
		"k8s.io/kubernetes":              v.kubernetes(),
		"k8s.io/api":                     string(v),
		"k8s.io/apimachinery":            string(v),
		"k8s.io/apiserver":               string(v),
		"k8s.io/client-go":               string(v),
		"k8s.io/component-base":          string(v),
		"k8s.io/apiextensions-apiserver": string(v),
		"k8s.io/kube-aggregator":         string(v),
	} {
		dir, err := download(module, version)
		if err != nil {
			return nil, err
		}
		s[module] = dir
	}
	c[v] = s
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

func (s sources) open(module, path string) ([]byte, error) {
	return os.ReadFile(filepath.Join(s[module], path))
}

// parse parses the Go files of a folder of a module.
func (s sources) parse(module, dir string) ([]*ast.File, error) {
	return parseDir(filepath.Join(s[module], dir))
}

// parseFile parses a Go file of a module.
func (s sources) parseFile(module, path string) (*ast.File, error) {
	return parser.ParseFile(token.NewFileSet(), filepath.Join(s[module], path), nil,
		parser.SkipObjectResolution)
}

// folders calls f for each folder of a module below dir, and for dir, if it may have sources of the
// program.
func (s sources) folders(module, dir string, f func(dir string) error) error {
	root := s[module]
	at := filepath.Join(root, dir)
	return filepath.WalkDir(at, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		switch d.Name() {
		case "testdata", "testing", "testutil", "fuzzer":
			return filepath.SkipDir
		}
		below, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return f(filepath.ToSlash(below))
	})
}

// parseDir parses the Go files of a folder that people have written, but no tests.
func parseDir(dir string) ([]*ast.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	set := token.NewFileSet()
	for _, e := range entries {
		if e.IsDir() || !written(e.Name()) {
			continue
		}
		file, err := parser.ParseFile(set, filepath.Join(dir, e.Name()), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", e.Name(), err)
		}
		files = append(files, file)
	}
	return files, nil
}

// written reports whether a file was written by people and is not a test.
func written(name string) bool {
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") &&
		!strings.HasPrefix(name, "zz_generated") && !strings.HasPrefix(name, "types_swagger") &&
		name != "generated.pb.go"
}
