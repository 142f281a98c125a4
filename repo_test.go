package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

const module = "github.com/kinproc/kinproc"

// forbidden lists imports that are not allowed, and why. An empty "in" stands for every package. A
// package path includes the packages below it.
var forbidden = []struct{ in, imports, because string }{
	{
		"", "k8s.io/kubernetes",
		"no library can require it without replace directives in each of its users' modules",
	},
	{"", "github.com/stretchr/testify", "tests use testing"},
	{"embed", "k8s.io", "the embedded etcd knows nothing of Kubernetes"},
	{"embed", "sigs.k8s.io", "the embedded etcd knows nothing of Kubernetes"},
	{"chain", "github.com/spf13/cobra", "the chain knows no command line"},
	{"server/cli/internal/sandbox", "github.com/spf13/cobra", "commands are in server/cli"},
	{"server/cli/internal/settings", "github.com/spf13/cobra", "commands are in server/cli"},
	{"server/cli/internal/develop", "github.com/spf13/cobra", "commands are in server/cli"},
	{"server/servertest", "testing", "it works under any test framework"},
	{"server/cli", module + "/server/servertest", "the program is not a test"},
}

// rooms lists, for each part of the module, the other parts that it may import. A folder includes
// everything below it. A package belongs to the longest listed folder that contains it.
var rooms = map[string][]string{
	".":                        {"server/cli"},
	"embed":                    nil,
	"conformance":              nil,
	"chain/documents":          nil,
	"chain/features":           nil,
	"chain/secretvalues":       nil,
	"chain/trace":              {"chain/internal/rawclient"},
	"chain/fault":              {"chain/internal/effect", "chain/internal/rawclient"},
	"chain/history":            {"chain/internal/rawclient"},
	"chain/internal/effect":    nil,
	"chain/internal/rawclient": nil,
	"chain/kind":               {"chain/internal/tracer"},
	"chain/internal": {
		"chain/trace", "chain/fault", "chain/history", "chain/documents", "chain/secretvalues",
	},
	"chain/aggregator":          {"chain/internal"},
	"chain/extensions":          {"chain/internal"},
	"chain/core/internal/rules": {"chain/features"},
	"chain/core/internal":       {"chain/features", "chain/kind"},
	"chain/core":                {"chain/features", "chain/internal", "chain/kind"},
	"chain":                     nil, // it links the servers, all of which are below it
	"server/internal/stopper":   nil,
	"server/internal/option":    nil,
	"server/internal/plainfile": nil,
	"server/internal/nearest":   nil,
	"server/internal/install":   {"chain/documents", "server/internal/auth/pki"},
	"server/internal/flags":     {"server/internal/controllers"},
	"server/internal/datadir": {
		"embed", "server/internal/option", "server/internal/stopper",
	},
	"server/internal/requests": {
		"chain/fault", "chain/history", "chain/trace", "server/internal/option",
		"server/internal/stopper",
	},
	"server/internal/requests/connections": nil,
	"server/internal/requests/epoch":       nil,
	"server/internal/requests/loopback":    {"server/internal/requests/epoch"},
	"server/internal/requests/patches":     nil,
	"server/internal/requests/paths":       nil,
	"server/internal/bootstrap": {
		"chain", "server/internal/admission", "server/internal/allocation", "server/internal/auth",
		"server/internal/controllers", "server/internal/etcdconn", "server/internal/stopper",
	},
	"server/internal/apis": {
		"chain", "embed", "server/internal/admission", "server/internal/allocation",
		"server/internal/auth", "server/internal/etcdconn", "server/internal/informers",
		"server/internal/requests", "server/internal/stopper",
	},
	"server/internal/reset": {
		"chain", "embed", "server/internal/bootstrap", "server/internal/etcdconn",
		"server/internal/requests",
	},
	"server/internal/loops": {
		"chain", "server/internal/admission/quota", "server/internal/allocation",
		"server/internal/auth", "server/internal/bootstrap/kubernetesservice",
		"server/internal/controllers", "server/internal/metricsapi", "server/internal/requests",
		"server/internal/simulated", "server/internal/stopper",
	},
	"server/internal/etcdconn": {
		"chain", "embed", "server/internal/auth/pki", "server/internal/option",
		"server/internal/reload", "server/internal/stopper",
	},
	"server/internal/reload":     {"server/internal/stopper"},
	"server/internal/informers":  {"chain", "server/internal/stopper"},
	"server/internal/allocation": nil,
	"server/internal/nesting":    {"chain/trace"},
	"server/internal/dashboard": {
		"chain/documents", "chain/history", "chain/secretvalues", "chain/trace",
		"server/internal/nesting", "server/internal/requests",
	},
	"server/internal/podreferences": nil,
	"server/internal/descriptors":   nil,
	"server/internal/auth": {
		"chain/core", "chain/features", "server/internal/datadir", "server/internal/option",
		"server/internal/podreferences", "server/internal/reload", "server/internal/stopper",
	},
	"server/internal/admission": {"chain", "server/internal/podreferences"},
	"server/internal/controllers": {
		"chain/features",
		"server/internal/allocation",
		"server/internal/nearest",
		"server/internal/podreferences",
		"server/internal/requests/epoch",
		"server/internal/requests/loopback",
		"server/internal/stopper",
		"server/internal/auth",            // the role aggregation loop knows the bootstrap policy
		"server/internal/admission/quota", // the evaluators of quotas
	},
	"server/internal/simulated": {
		"chain/core", // whose kubelet it is
		"chain/documents",
		"server/internal/controllers/loop", "server/internal/controllers/pods",
		"server/internal/plainfile",
	},
	"server/internal/metricsapi": {
		"server/internal/auth/pki", "server/internal/controllers/pods",
		"server/internal/requests/epoch", "server/internal/simulated", "server/internal/stopper",
	},
	"server/internal/controllers/workloadtest": {"server", "server/servertest"},
	"server/internal/invariant":                {"server/internal/nearest"},
	"server/internal/disturb":                  {"chain/history", "server/internal/invariant"},
	"server/internal/explorer": {
		"server/internal/disturb", "server/internal/invariant", "server/internal/nearest",
	},
	"server/internal/program":   {"server/internal/auth/pki", "server/internal/plainfile"},
	"server/internal/reflected": nil,
	"server/servertest": {
		"chain/fault", "chain/history", "server", "server/internal/install",
		"server/internal/reflected",
	},
	"server/servertest/explore": {
		"server", "server/servertest", "server/internal/disturb", "server/internal/explorer",
		"server/internal/invariant", "server/internal/program",
	},
	"server/serverflags": {"server"},
	"server/extension": {
		"chain/kind", "server/internal/auth/pki", "server/internal/install",
		"server/internal/plainfile", "server/internal/reflected",
		"server/internal/requests/connections", "server/internal/requests/patches",
	},
	"server/cli/internal/output":  nil,
	"server/cli/internal/private": {"server/internal/plainfile"},
	"server/cli/internal/origin":  {"server/cli/internal/private", "server/internal/datadir"},
	"server/cli/internal/settings": {
		"chain/documents", "server", "server/cli/internal/origin", "server/cli/internal/output",
		"server/cli/internal/private", "server/internal/nearest", "server/internal/simulated",
	},
	"server/cli/internal/sandbox": {
		"chain/documents", "server/cli/internal/origin", "server/cli/internal/output",
		"server/cli/internal/private", "server/cli/internal/settings", "server/internal/auth/pki",
		"server/internal/datadir",
	},
	"server/cli/internal/develop": {
		"chain/documents", "server/cli/internal/output", "server/extension",
		"server/internal/auth/pki", "server/internal/install", "server/internal/plainfile",
	},
	"server/cli": {
		"embed", "server", "server/internal/auth/pki", "server/internal/disturb",
		"server/internal/explorer",
		"server/internal/install", "server/internal/invariant",
		"server/internal/plainfile", "server/internal/requests/paths", "chain/documents", "chain/fault",
		"chain/history",
		"chain/trace",
	},
	"server": {"chain", "embed"},
}

// roomOf returns the room that a package belongs to. Both paths are relative to the module.
func roomOf(dir string) string {
	for room := dir; ; room = path.Dir(room) {
		if _, ok := rooms[room]; ok || room == "." {
			return room
		}
	}
}

func TestRoomsImportWhatTheyMay(t *testing.T) {
	t.Parallel()
	goFiles(t, func(file string, parsed *ast.File) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		room := roomOf(path.Dir(file))
		for _, spec := range parsed.Imports {
			imported, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/")
			if !ours || within(imported, room) {
				continue
			}
			if !slices.ContainsFunc(rooms[room], func(may string) bool { return within(imported, may) }) {
				t.Errorf("%s: room %s may not import %s", file, room, imported)
			}
		}
	})
}

func TestNamesOfPackagesAreUnique(t *testing.T) {
	t.Parallel()
	dirs := map[string]string{}
	goFiles(t, func(file string, _ *ast.File) {
		dir := path.Dir(file)
		if other, ok := dirs[path.Base(dir)]; ok && other != dir {
			t.Errorf("%s and %s have the same last path element", dir, other)
		}
		dirs[path.Base(dir)] = dir
	})
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
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil ||
				strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" {
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
				if dir == "server/servertest/explore" && rule.imports == "testing" {
					continue // it has subtests and bubbles
				}
				if within(dir, rule.in) && within(imported, rule.imports) &&
					!within(imported, module+"/"+rule.in) {
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
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					t.Errorf("%s has an init function: pass the package what it needs instead", path)
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR && callsLiteral(d) {
					t.Errorf("%s has a variable that runs a function at import, as init does", path)
				}
			}
		}
	})
}

// callsLiteral reports whether the value of a variable is a call of a function literal.
func callsLiteral(variables *ast.GenDecl) bool {
	for _, spec := range variables.Specs {
		for _, value := range spec.(*ast.ValueSpec).Values {
			if call, ok := value.(*ast.CallExpr); ok {
				if _, literal := call.Fun.(*ast.FuncLit); literal {
					return true
				}
			}
		}
	}
	return false
}

// longestFile is the maximum number of lines in a file that people read. Generated files are
// exempt.
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

// Every module that uses this one would have to repeat a replace directive.
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
