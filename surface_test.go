package main

import (
	"bytes"
	"flag"
	"go/ast"
	"go/format"
	"go/token"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// surfaceFile lists what library users can use, so that a review sees when that changes.
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
		t.Logf("if that is what you want, make generate writes %s", surfaceFile)
	}
}

// surface has a line for every exported name of the packages that others can import.
func surface(t *testing.T) string {
	t.Helper()
	packages := map[string][]*ast.File{}
	goFiles(t, func(file string, parsed *ast.File) {
		if !strings.HasSuffix(file, "_test.go") && parsed.Name.Name != "main" {
			ast.FileExports(parsed)
			packages[path.Dir(file)] = append(packages[path.Dir(file)], parsed)
		}
	})
	var lines []string
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		if strings.Contains("/"+dir+"/", "/internal/") {
			continue
		}
		var names []string
		for _, file := range packages[dir] {
			for _, decl := range file.Decls {
				names = append(names, describe(decl)...)
			}
			for alias, target := range internalAliases(file) {
				names = append(names, aliased(alias, target, packages)...)
			}
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			lines = append(lines, "pkg "+dir+", "+name+"\n")
		}
	}
	return strings.Join(lines, "")
}

// describe describes what a declaration exports, in the manner of the Go project's own api files.
func describe(decl ast.Decl) []string {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		decl.Doc, decl.Body = nil, nil
		return []string{source(decl)}
	case *ast.GenDecl:
		var lines []string
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
		return lines
	}
	return nil
}

func describeType(spec *ast.TypeSpec) []string {
	var members *ast.FieldList
	var what string
	switch t := spec.Type.(type) {
	case *ast.StructType:
		members, what = t.Fields, " struct"
	case *ast.InterfaceType:
		members, what = t.Methods, " interface"
	}
	name := "type " + spec.Name.Name
	if members == nil {
		return []string{"type " + source(&ast.TypeSpec{Name: spec.Name, TypeParams: spec.TypeParams, Assign: spec.Assign, Type: spec.Type})}
	}
	lines := []string{name + what}
	for _, m := range members.List {
		if len(m.Names) == 0 {
			lines = append(lines, name+what+", embeds "+source(m.Type))
		}
		for _, n := range m.Names {
			lines = append(lines, name+what+", "+n.Name+" "+source(m.Type))
		}
	}
	return lines
}

// internalAliases finds the types of a file that stand for types of internal packages of this module.
func internalAliases(file *ast.File) map[string]string {
	imports := map[string]string{} // by name
	for _, spec := range file.Imports {
		if dir, ok := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/"); ok && strings.Contains(dir, "internal/") {
			imports[path.Base(dir)] = dir
		}
	}
	aliases := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && spec.Assign.IsValid() {
			if target, ok := spec.Type.(*ast.SelectorExpr); ok {
				if dir := imports[source(target.X)]; dir != "" {
					aliases[spec.Name.Name] = dir + "." + target.Sel.Name
				}
			}
		}
		return true
	})
	return aliases
}

// aliased describes what an alias exports: the fields and methods of the type that it stands for.
func aliased(alias, target string, packages map[string][]*ast.File) []string {
	dir, name := path.Split(target)
	name, typ, _ := strings.Cut(name, ".")
	var lines []string
	for _, file := range packages[dir+name] {
		for _, decl := range file.Decls {
			for _, line := range describe(decl) {
				fields := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" ,()*", r) })
				method := strings.HasPrefix(line, "func (") && slices.Contains(fields[:3], typ)
				if method || strings.HasPrefix(line, "type "+typ+" ") && strings.Contains(line, ", ") {
					lines = append(lines, alias+": "+line)
				}
			}
		}
	}
	return lines
}

// source returns the source of a node in one line.
func source(node ast.Node) string {
	ast.Inspect(node, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok {
			f.Doc, f.Comment = nil, nil
		}
		return true
	})
	var b bytes.Buffer
	if err := format.Node(&b, token.NewFileSet(), node); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
