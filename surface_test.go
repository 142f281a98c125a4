package main

import (
	"flag"
	"go/ast"
	"go/format"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// surfaceFile lists the exported API, so that changes to it show up in review.
const surfaceFile = "docs/surface.txt"

var update = flag.Bool("update", false, "write "+surfaceFile)

func TestSurface(t *testing.T) {
	t.Parallel()
	got := surface(t)
	if *update {
		if err := os.WriteFile(surfaceFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(surfaceFile)
	if err != nil {
		t.Fatal(err)
	}
	before, now := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for _, line := range now {
		if !slices.Contains(before, line) {
			t.Errorf("new: %s", line)
		}
	}
	for _, line := range before {
		if !slices.Contains(now, line) {
			t.Errorf("gone: %s", line)
		}
	}
	if t.Failed() {
		t.Logf("if the change is intended, run make generate to update %s", surfaceFile)
	}
}

// surface returns a line for every exported name of the packages that are for other modules, but
// for functions with a type of an internal package, which are for this module.
func surface(t *testing.T) string {
	t.Helper()
	all := map[string][]string{} // by package
	goFiles(t, func(file string, parsed *ast.File) {
		if strings.HasSuffix(file, "_test.go") || parsed.Name.Name == "main" {
			return
		}
		ast.FileExports(parsed)
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && !isInternal(path.Dir(file)) &&
				mentionsInternal(parsed, f.Type) {
				continue
			}
			all[path.Dir(file)] = append(all[path.Dir(file)], describe(decl)...)
		}
	})
	var b strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		if isInternal(dir) || slices.Contains(forServer, dir) {
			continue
		}
		names := slices.Clone(all[dir])
		for _, line := range all[dir] {
			names = append(names, aliased(line, all)...)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			b.WriteString("pkg " + dir + ", " + name + "\n")
		}
	}
	return b.String()
}

// forServer lists the packages whose names are exported for package server only, and what is below
// it. Their documentation says so.
var forServer = []string{
	"chain", "chain/aggregator", "chain/core", "chain/documents", "chain/extensions",
	"chain/features", "chain/secretvalues",
}

func isInternal(dir string) bool { return strings.Contains("/"+dir+"/", "/internal/") }

// mentionsInternal reports whether a type of a function in a file is that of an internal package.
func mentionsInternal(file *ast.File, function *ast.FuncType) (found bool) {
	ast.Inspect(function, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, _ := selector.X.(*ast.Ident)
		for _, i := range file.Imports {
			imported := strings.Trim(i.Path.Value, `"`)
			found = found || of != nil && isInternal(imported) && path.Base(imported) == of.Name
		}
		return false
	})
	return found
}

var alias = regexp.MustCompile(`^type \w+ = (\w+)\.(\w+)$`)

// aliased returns the fields and methods of the internal type that a line exports as an alias. For
// any other line it returns nil.
func aliased(line string, all map[string][]string) []string {
	match := alias.FindStringSubmatch(line)
	if match == nil {
		return nil
	}
	var lines []string
	member := regexp.MustCompile(`^func \(\w+ \*?` + match[2] + `\)|^type ` + match[2] + ` \w+, `)
	for dir, names := range all {
		if isInternal(dir) && path.Base(dir) == match[1] {
			for _, name := range names {
				if member.MatchString(name) {
					lines = append(lines, line+": "+name)
				}
			}
		}
	}
	return lines
}

// describe returns a line for each exported name of a declaration, in the format of the Go
// project's api files.
func describe(decl ast.Decl) []string {
	var lines []string
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		decl.Doc, decl.Body = nil, nil
		if line := source(decl); !unexportedReceiver.MatchString(line) {
			lines = append(lines, line)
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				lines = append(lines, describeType(spec)...)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					line := decl.Tok.String() + " " + name.Name
					if spec.Type != nil {
						line += " " + source(spec.Type)
					}
					lines = append(lines, line)
				}
			}
		}
	}
	return lines
}

var unexportedReceiver = regexp.MustCompile(`^func \((\w+ )?\*?\p{Ll}\w*[\[)]`)

func describeType(spec *ast.TypeSpec) []string {
	switch t := spec.Type.(type) {
	case *ast.StructType:
		return members("type "+spec.Name.Name+" struct", t.Fields)
	case *ast.InterfaceType:
		return members("type "+spec.Name.Name+" interface", t.Methods)
	}
	spec.Doc, spec.Comment = nil, nil
	return []string{"type " + source(spec)}
}

func members(of string, list *ast.FieldList) []string {
	lines := []string{of}
	for _, m := range list.List {
		if len(m.Names) == 0 {
			lines = append(lines, of+", "+source(m.Type))
		}
		for _, n := range m.Names {
			lines = append(lines, of+", "+n.Name+" "+source(m.Type))
		}
	}
	return lines
}

// source returns the source of a node on one line.
func source(node ast.Node) string {
	var b strings.Builder
	if err := format.Node(&b, token.NewFileSet(), node); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
