package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/format"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// row matches a row of docs/upstream.md: the file that knows more of a library than the library
// promises, the symbols that it knows, each an import path with a name such as
// k8s.io/apiserver/pkg/server.GenericAPIServer.PrepareRun, and the tests that fail when they
// change.
var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (`[^|]+`) \\|.*\\| ([^|]+) \\|$")

// A place is a row of docs/upstream.md.
type place struct {
	file           string
	symbols, tests []string
}

func places(dir string) ([]place, error) {
	text, err := os.ReadFile(filepath.Join(dir, "docs", "upstream.md"))
	if err != nil {
		return nil, err
	}
	var all []place
	for _, r := range row.FindAllStringSubmatch(string(text), -1) {
		all = append(all, place{r[1], quoted(r[2]), quoted(r[3])})
	}
	if rows := strings.Count(string(text), "\n| `"); len(all) != rows || rows == 0 {
		return nil, fmt.Errorf("docs/upstream.md has %d rows, but %d of the expected form", rows,
			len(all))
	}
	return all, nil
}

var quotation = regexp.MustCompile("`([^`]+)`")

func quoted(list string) []string {
	var words []string
	for _, match := range quotation.FindAllStringSubmatch(list, -1) {
		words = append(words, match[1])
	}
	return words
}

// changed returns a line for each symbol of docs/upstream.md that is gone or has another source.
func changed(dir string, from, to version) ([]string, error) {
	all, err := places(dir)
	if err != nil {
		return nil, err
	}
	before, err := builtWith(dir, from)
	if err != nil {
		return nil, err
	}
	after, err := builtWith(dir, to)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, p := range all {
		for _, symbol := range p.symbols {
			then, err := before.source(symbol)
			if err != nil {
				return nil, err
			}
			now, err := after.source(symbol)
			if err != nil {
				return nil, err
			}
			switch {
			case now == "":
				lines = append(lines, "- "+symbol+": "+p.file)
			case then != now:
				lines = append(lines, "~ "+symbol+": "+p.file)
			}
		}
	}
	return lines, nil
}

// versions are the versions of modules, by their paths.
type versions map[string]string

// builtWith returns the versions with which the repository in dir is built, or would be with
// another Kubernetes.
func builtWith(dir string, v version) (versions, error) {
	file, err := parse(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, err
	}
	all := versions{}
	for _, r := range file.Require {
		all[r.Mod.Path] = r.Mod.Version
	}
	current := all["k8s.io/apiserver"]
	if v == "" || string(v) == current {
		return all, nil
	}
	for path, have := range all {
		if within(path, "k8s.io") && have == current {
			all[path] = string(v)
		}
	}
	wanted, err := companions(v)
	maps.Copy(all, wanted)
	return all, err
}

// source returns the declaration of a name in a package, or of a method or field of a type, without
// comments. It is empty if there is none.
func (v versions) source(symbol string) (string, error) {
	slash := strings.LastIndex(symbol, "/")
	name := strings.Split(symbol[slash+1:], ".")
	folder, err := v.dir(symbol[:slash+1] + name[0])
	if err != nil || folder == "" {
		return "", err
	}
	files, err := parseDir(folder)
	if err != nil {
		return "", err
	}
	for _, file := range files {
		for _, decl := range file.Decls {
			if node := declared(decl, name[1:]); node != nil {
				return oneLine(node)
			}
		}
	}
	return "", nil
}

// oneLine returns the source of a node on one line.
func oneLine(node ast.Node) (string, error) {
	var b strings.Builder
	err := format.Node(&b, token.NewFileSet(), node)
	return strings.Join(strings.Fields(b.String()), " "), err
}

// dir returns the folder of a package's sources, or nothing if there is no such package. A path
// without a dot in its first element belongs to the standard library.
func (v versions) dir(path string) (string, error) {
	first, _, _ := strings.Cut(path, "/")
	if !strings.Contains(first, ".") {
		return existing(filepath.Join(build.Default.GOROOT, "src", path)), nil
	}
	for module, version := range v {
		if path != module && !strings.HasPrefix(path, module+"/") {
			continue
		}
		root, err := download(module, version)
		if err != nil {
			return "", err
		}
		if found := existing(filepath.Join(root, strings.TrimPrefix(path, module))); found != "" {
			return found, nil
		}
	}
	return "", nil
}

func existing(dir string) string {
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// declared returns what declares a name, or a type's method or field, in a declaration.
func declared(decl ast.Decl, name []string) ast.Node {
	withoutComments(decl)
	if f, ok := decl.(*ast.FuncDecl); ok {
		switch {
		case f.Recv == nil && len(name) == 1 && f.Name.Name == name[0]:
			return f
		case f.Recv != nil && len(name) == 2 && f.Name.Name == name[1] &&
			receiver(f.Recv.List[0].Type) == name[0]:
			return f
		}
		return nil
	}
	for _, spec := range decl.(*ast.GenDecl).Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			if len(name) == 1 && slices.ContainsFunc(spec.Names,
				func(id *ast.Ident) bool { return id.Name == name[0] }) {
				return spec
			}
		case *ast.TypeSpec:
			if spec.Name.Name != name[0] {
				continue
			}
			if len(name) == 1 {
				return spec
			}
			if member := memberOf(spec.Type, name[1]); member != nil {
				return member
			}
		}
	}
	return nil
}

func withoutComments(node ast.Node) {
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			n.Doc = nil
		case *ast.GenDecl:
			n.Doc = nil
		case *ast.Field:
			n.Doc, n.Comment = nil, nil
		case *ast.TypeSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.ValueSpec:
			n.Doc, n.Comment = nil, nil
		}
		return true
	})
}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// memberOf returns the type of a field or method, or nil.
func memberOf(t ast.Expr, name string) ast.Node {
	var members *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		members = t.Fields
	case *ast.InterfaceType:
		members = t.Methods
	default:
		return nil
	}
	for _, m := range members.List {
		if len(m.Names) == 0 && receiver(m.Type) == name || slices.ContainsFunc(m.Names,
			func(id *ast.Ident) bool { return id.Name == name }) {
			return m.Type
		}
	}
	return nil
}
