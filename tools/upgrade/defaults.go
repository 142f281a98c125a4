package main

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// defaults reads the statements of the functions that set default values, with the defaults of the
// gates that they ask.
func defaults(s sources, v version) (facts, error) {
	known, err := gates(s, v)
	if err != nil {
		return nil, err
	}
	found := facts{}
	err = s.files([]string{"k8s.io/kubernetes/pkg/apis"}, func(pkg string, file *ast.File) {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil || !strings.Contains(strings.ToLower(f.Name.Name), "default") {
				continue
			}
			name := strings.TrimPrefix(pkg, "pkg/apis/") + "." + f.Name.Name
			for _, statement := range statements(f.Body) {
				asked := asks(statement, known)
				var states []string
				for _, gate := range slices.Sorted(maps.Keys(asked)) {
					states = append(states, gate+" is "+asked[gate])
				}
				found[name+" "+statement] = strings.Join(states, ", ")
			}
		}
	})
	return found, err
}

// defaultTags reads the default values that the types of the API declare.
func defaultTags(s sources, _ version) (facts, error) {
	found := facts{}
	err := s.walk(func(structure string, _ []string, fields []field) {
		for _, f := range fields {
			for _, tag := range f.tags {
				if value, ok := strings.CutPrefix(tag, "+default="); ok {
					found[structure+"."+f.name] = value
				}
			}
		}
	}, func(string, string) {})
	return found, err
}
