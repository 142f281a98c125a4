package main

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// heavy are packages that no test of a user needs. What a test links and compiles is in
// docs/performance.md.
var heavy = []string{
	module + "/server/cli", module + "/server/internal/dashboard",
	"k8s.io/cli-runtime", "k8s.io/code-generator", "k8s.io/gengo", "k8s.io/kubectl",
	"sigs.k8s.io/controller-runtime", "sigs.k8s.io/kustomize",
	"github.com/rogpeppe/go-internal", "github.com/stretchr/testify", "golang.org/x/tools",
}

func TestTestsLinkNothingHeavy(t *testing.T) {
	t.Parallel()
	deps := goCommand(t, ".", "list", "-mod=readonly", "-deps", "./server/servertest",
		"./server/servertest/explore")
	for dep := range strings.Lines(deps) {
		dep = strings.TrimSpace(dep)
		if slices.ContainsFunc(heavy, func(tree string) bool { return within(dep, tree) }) {
			t.Errorf("%s is among the dependencies of servertest", dep)
		}
	}
}

// informers are packages whose types make a package slow to compile: each package that reads them
// compiles the methods of generic types for 150 kinds, which takes more than a second. To compile
// what uses a type, Go reads the types of all its fields and methods.
const informers = "k8s.io/client-go/informers"

func TestTypesDoNotLeadToInformers(t *testing.T) {
	t.Parallel()
	exports := map[string]string{}
	list := goCommand(t, ".", "list", "-mod=readonly", "-deps", "-export",
		"-f", "{{.ImportPath}} {{.Export}}", "./server/servertest/explore")
	for line := range strings.Lines(list) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, dir := range []string{
		"server", "server/servertest", "server/servertest/explore", // users compile against these,
		"server/internal/controllers/loop", // and forty packages against this
	} {
		pkg, err := from.Import(module + "/" + dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range pkg.Scope().Names() {
			object := pkg.Scope().Lookup(name)
			way := wayTo(informers, object.Type(), map[types.Type]bool{})
			if object.Exported() && way != "" {
				t.Errorf("%s.%s leads to types of %s: %s", dir, name, informers, way)
			}
		}
	}
}

// wayTo returns how a type leads to a type of a package tree, or nothing.
func wayTo(tree string, from types.Type, seen map[types.Type]bool) string {
	if seen[from] {
		return ""
	}
	seen[from] = true
	var next []types.Object
	var elements []types.Type
	switch from := types.Unalias(from).(type) {
	case *types.Named:
		name := from.Obj()
		if name.Pkg() != nil && within(name.Pkg().Path(), tree) {
			return name.String()
		}
		for i := range from.NumMethods() {
			next = append(next, from.Method(i))
		}
		elements = append(slices.Collect(from.TypeArgs().Types()), from.Underlying())
	case *types.Struct:
		for field := range from.Fields() {
			next = append(next, field)
		}
	case *types.Interface:
		for method := range from.Methods() {
			next = append(next, method)
		}
	case *types.Signature:
		elements = append(elements, from.Params(), from.Results())
	case *types.Tuple:
		for v := range from.Variables() {
			elements = append(elements, v.Type())
		}
	case *types.Map:
		elements = append(elements, from.Key(), from.Elem())
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
		elements = append(elements, from.Elem())
	}
	for _, element := range elements {
		if way := wayTo(tree, element, seen); way != "" {
			return way
		}
	}
	for _, object := range next {
		if way := wayTo(tree, object.Type(), seen); way != "" {
			return fmt.Sprintf("%s, %s", object, way)
		}
	}
	return ""
}
