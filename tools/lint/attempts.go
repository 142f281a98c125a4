package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// attempts finds loops of tests that end at the first success, such as
//
//	for range 5 {
//		if err = try(); err == nil {
//			break
//		}
//	}
//
// A test that passes if one of several attempts is good does not find what fails sometimes.
var attempts = &analysis.Analyzer{
	Name: "attempts",
	Doc:  "find tests of which one of several attempts must succeed",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, file := range pass.Files {
			if !strings.HasSuffix(pass.Fset.File(file.Pos()).Name(), "_test.go") {
				continue
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if loop, ok := n.(*ast.RangeStmt); ok && counts(pass, loop) {
					for _, s := range loop.Body.List {
						if end := success(s); end != nil {
							pass.Reportf(end.Pos(), "one of several attempts is good enough for this test: "+
								"wait for a condition, or try once")
						}
					}
				}
				return true
			})
		}
		return nil, nil
	},
}

// counts reports whether a loop has a fixed number of rounds, whose numbers are not used.
func counts(pass *analysis.Pass, loop *ast.RangeStmt) bool {
	rounds := pass.TypesInfo.Types[loop.X]
	basic, ok := rounds.Type.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsInteger != 0 && rounds.Value != nil && loop.Key == nil
}

// success returns the statement with which s ends the loop without a failure of the test, or nil.
func success(s ast.Stmt) ast.Stmt {
	branch, ok := s.(*ast.IfStmt)
	if !ok {
		return nil
	}
	for _, s := range branch.Body.List {
		if fails(s) {
			return nil
		}
		switch s := s.(type) {
		case *ast.ReturnStmt:
			return s
		case *ast.BranchStmt:
			if s.Tok == token.BREAK {
				return s
			}
		}
	}
	return nil
}

// fails reports whether a statement calls a method such as t.Error.
func fails(s ast.Stmt) bool {
	call, ok := s.(*ast.ExprStmt)
	if !ok {
		return false
	}
	method, ok := call.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	name, ok := method.Fun.(*ast.SelectorExpr)
	return ok && (strings.HasPrefix(name.Sel.Name, "Error") || strings.HasPrefix(name.Sel.Name, "Fa"))
}
