package main

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// opensByName lists who opens files by a name, but not with package plainfile, and why nobody else
// chooses what the name stands for. An entry includes everything below it.
var opensByName = map[string]string{
	"chain/aggregator/availability.go":            "files of the server",
	"conformance":                                 "for tests",
	"embed":                                       "files of the server, below a claimed directory",
	"server/cli/detach_unix.go":                   "a log, to write",
	"server/cli/detach_windows.go":                "a log, to write",
	"server/cli/explore.go":                       "new logs, to write",
	"server/cli/explore_emit.go":                  "a new test, to write",
	"server/cli/internal/develop/registration.go": "an argument of the user",
	"server/internal/install/manifests.go":        "a directory",
	"server/cli/internal/sandbox/kubeconfig.go":   "a flag of the user, and its lock",
	"server/cli/internal/sandbox/process_unix.go": "a lock, and what package private opens",
	"server/cli/internal/sandbox/registry.go":     "a directory of the user's own",
	"server/cli/internal/sandbox/sandbox.go":      "package private opens it",
	"server/cli/internal/scaffold/scaffold.go":    "templates in the program",
	"server/cli/internal/standin":                 "programs",
	"server/cli/list.go":                          "a file of the kernel",
	"server/cli/scaffold.go":                      "the source of the program",
	"server/cli/trace.go":                         "a flag of the user",
	"server/extension/internal/records/files.go":  "a directory",
	"server/internal/auth":                        "files that flags name",
	"server/internal/datadir":                     "a new file",
	"server/files.go":                             "files that options name",
	"server/internal/descriptors":                 "the null device",
	"server/internal/etcdconn":                    "a file that a flag names",
	"server/internal/plainfile":                   "it asks what has been opened",
	"server/internal/reload":                      "files that flags name",
	"server/servertest":                           "files that a test names",
}

// TestFilesAreOpenedByPlainfile finds calls that open files by name. If a user's object names the
// file, or it comes with a repository, it may be a named pipe, which takes a thread for ever.
func TestFilesAreOpenedByPlainfile(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	goFiles(t, func(path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") || within(path, "examples") || within(path, "tools") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, _ := call.X.(*ast.Ident)
			root := call.Sel.Name == "Open" && isRoot(call.X)
			named := of != nil && (of.Name == "os" || of.Name == "fs") && slices.Contains(
				[]string{"Open", "OpenFile", "ReadFile", "OpenInRoot", "DirFS"}, call.Sel.Name)
			if !root && !named {
				return true
			}
			for entry := range opensByName {
				if within(path, entry) {
					found[entry] = true
					return true
				}
			}
			t.Errorf("%s opens a file with %s: use package plainfile, or say why nobody else chooses what "+
				"the name stands for", path, call.Sel.Name)
			return true
		})
	})
	for entry := range maps.Keys(opensByName) {
		if !found[entry] {
			t.Errorf("%s opens no file by its name", entry)
		}
	}
}

// isRoot reports whether an expression is named like an os.Root.
func isRoot(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "root" || x.Name == "dir"
	case *ast.SelectorExpr:
		return x.Sel.Name == "root" || x.Sel.Name == "Root" || x.Sel.Name == "dir"
	}
	return false
}
