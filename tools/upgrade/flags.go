package main

import (
	"fmt"
	"go/ast"
	"strings"
)

// flags reads the flags of a program that packages declare: their types, default values and help,
// as far as they are written where the flag is declared.
func flags(program, pattern string) func(sources, version) (facts, error) {
	return func(s sources, _ version) (facts, error) {
		module, dir := s.split(pattern)
		found := facts{}
		err := s.folders(module, dir, func(dir string) error {
			files, err := s.parse(module, dir)
			constants := stringConstants(files)
			for _, file := range files {
				flagsOf(file, program, constants, found)
			}
			return err
		})
		return found, err
	}
}

// flagsOf adds the flags that a file declares to found, by calls such as
// fs.StringVar(&o.File, "file", o.File, "The file.") or flag.Bool("fast", false, "Be fast.").
func flagsOf(file *ast.File, program string, constants map[string]string, found facts) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		method, args := selector.Sel.Name, call.Args
		switch {
		case strings.HasSuffix(method, "Var") || strings.HasSuffix(method, "VarP"):
			if kind := strings.TrimSuffix(strings.TrimSuffix(method, "P"), "Var"); kind != "" {
				method = kind
			} else {
				method = source(args[0])
			}
			args = args[1:]
		case method == "MarkDeprecated" || method == "MarkHidden":
			if name, ok := stringOf(args[0], constants); ok {
				found[program+" --"+name+" "+method] = source(args[1])
			}
			return true
		case len(args) != 3 || source(selector.X) != "flag":
			return true
		}
		name, ok := flagName(args[0], constants)
		if !ok || len(args) < 2 {
			return true
		}
		last := len(args) - 1
		help, ok := stringOf(args[last], constants)
		if !ok {
			help = source(args[last])
		}
		if last > 1 && !ofOptions(args[last-1]) {
			method += " " + source(args[last-1])
		}
		found[program+" --"+name] = fmt.Sprintf("(%s) %q", method, help)
		return true
	})
}

// flagName returns the name of a flag, or a format of several names.
func flagName(x ast.Expr, constants map[string]string) (string, bool) {
	if call, ok := x.(*ast.CallExpr); ok && source(call.Fun) == "fmt.Sprintf" {
		x = call.Args[0]
	}
	return stringOf(x, constants)
}

// ofOptions reports whether a default value is a field of the options, which says nothing.
func ofOptions(value ast.Expr) bool {
	selector, ok := value.(*ast.SelectorExpr)
	return ok && source(selector.X) != "time"
}
