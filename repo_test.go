package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

const module = "github.com/kinproc/kinproc"

// forbidden lists who may not import what, and why. An empty "in" is everybody, and a package stands for what is below it.
var forbidden = []struct{ in, imports, because string }{
	{"", "k8s.io/kubernetes", "no library can require it without replace directives in each of its users' modules"},
	{"", "github.com/stretchr/testify", "tests use testing"},
	{"embed", "k8s.io", "the embedded etcd knows nothing of Kubernetes"},
	{"embed", "sigs.k8s.io", "the embedded etcd knows nothing of Kubernetes"},
	{"embed", module, "the embedded etcd stands alone"},
	{"chain", "github.com/spf13/cobra", "the chain knows no command line"},
	{"chain", module + "/server", "a server links a chain, not the other way round"},
	{"chain", module + "/embed", "the chain is given a client"},
	{"chain/core/kind", module + "/chain/core/core", "kinds are declared to the engine, which knows none"},
	{"chain/core/openapi", module, "generated definitions depend on types alone"},
	{"server/auth", module + "/server/cli", "the command line comes first"},
	{"server/admission", module + "/server/cli", "the command line comes first"},
	{"server/controllers", module + "/server/cli", "the command line comes first"},
	{"server/servertest", module + "/server/cli", "tests use what library users use"},
	{"server/servertest", "testing", "it works under any test framework"},
}

// goFiles calls f for every Go file of this module, tests and generated files included.
func goFiles(t *testing.T, f func(path string, file *ast.File)) {
	t.Helper()
	files := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" {
				return filepath.SkipDir
			}
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		mode := parser.ParseComments | parser.SkipObjectResolution
		if strings.HasPrefix(d.Name(), "zz_generated") {
			mode = parser.ImportsOnly | parser.ParseComments
		}
		file, err := parser.ParseFile(files, path, nil, mode)
		if err != nil {
			return err
		}
		f(filepath.ToSlash(path), file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func within(path, tree string) bool {
	return tree == "" || path == tree || strings.HasPrefix(path, tree+"/")
}

func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	goFiles(t, func(path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			for _, rule := range forbidden {
				if within(dir, rule.in) && within(imported, rule.imports) && !within(imported, module+"/"+rule.in) {
					t.Errorf("%s imports %s: %s", path, imported, rule.because)
				}
			}
		}
	})
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	t.Parallel()
	comments := map[string][]string{}
	goFiles(t, func(path string, file *ast.File) {
		dir := filepath.Dir(path)
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		comments[dir] = append(comments[dir], "")
		if file.Doc != nil {
			comments[dir][len(comments[dir])-1] = path
		}
	})
	for dir, paths := range comments {
		found := 0
		for _, path := range paths {
			if path != "" {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s: %d files have a package comment, want one", dir, found)
		}
	}
}

func TestNoInit(t *testing.T) {
	t.Parallel()
	goFiles(t, func(path string, file *ast.File) {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s has an init function: what a package needs is passed to it", path)
			}
		}
	})
}

// Files beyond this are a hard read. Generated ones are not read.
const longestFile = 700

func TestFilesAreShort(t *testing.T) {
	t.Parallel()
	goFiles(t, func(path string, _ *ast.File) {
		if strings.HasPrefix(filepath.Base(path), "zz_generated") {
			return
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(data), "\n"); n > longestFile {
			t.Errorf("%s has %d lines, the limit is %d", path, n, longestFile)
		}
	})
}

// A replace directive would have to stand in the module of everybody who uses this one.
func TestModuleReplacesNothing(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m, err := modfile.Parse("go.mod", data, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range m.Replace {
		t.Errorf("go.mod replaces %s", r.Old)
	}
	for _, r := range m.Require {
		if r.Mod.Path == "k8s.io/kubernetes" {
			t.Error("go.mod requires k8s.io/kubernetes")
		}
	}
}
