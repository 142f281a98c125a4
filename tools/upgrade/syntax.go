package main

import (
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// source returns the source of a node on one line.
func source(node ast.Node) string {
	if node == nil {
		return ""
	}
	text, err := oneLine(node)
	if err != nil { // the node is not from a parser
		return err.Error()
	}
	return text
}

// valueOf returns the value of a variable of a file, or nil.
func valueOf(file *ast.File, name string) ast.Expr {
	for _, decl := range file.Decls {
		decl, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range decl.Specs {
			spec, ok := spec.(*ast.ValueSpec)
			if ok && len(spec.Values) == 1 && spec.Names[0].Name == name {
				return spec.Values[0]
			}
		}
	}
	return nil
}

// elements returns the elements of a composite literal, or of one whose address is taken.
func elements(x ast.Expr) []ast.Expr {
	if address, ok := x.(*ast.UnaryExpr); ok {
		x = address.X
	}
	if literal, ok := x.(*ast.CompositeLit); ok {
		return literal.Elts
	}
	return nil
}

// keyed returns the values of a composite literal by their keys.
func keyed(x ast.Expr) map[string]ast.Expr {
	found := map[string]ast.Expr{}
	for _, element := range elements(x) {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			found[source(pair.Key)] = pair.Value
		}
	}
	return found
}

// stringOf returns the string that an expression is, and whether it is one. Parts that are neither
// literals nor among the constants are shown as they are written.
func stringOf(x ast.Expr, constants map[string]string) (string, bool) {
	switch x := x.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(x.Value)
		return text, x.Kind == token.STRING && err == nil
	case *ast.ParenExpr:
		return stringOf(x.X, constants)
	case *ast.Ident:
		text, ok := constants[x.Name]
		return text, ok
	case *ast.BinaryExpr:
		left, leftOK := stringOf(x.X, constants)
		right, rightOK := stringOf(x.Y, constants)
		if !leftOK {
			left = "{" + source(x.X) + "}"
		}
		if !rightOK {
			right = "{" + source(x.Y) + "}"
		}
		return left + right, x.Op == token.ADD && (leftOK || rightOK)
	}
	return "", false
}

// statements returns the simple statements of a block, each with the conditions under which it is
// executed.
func statements(block *ast.BlockStmt) []string {
	var all []string
	var walk func(list []ast.Stmt, when []string)
	add := func(statement ast.Stmt, when []string) {
		text := source(statement)
		if len(when) > 0 {
			text += " if " + strings.Join(when, " && ")
		}
		all = append(all, text)
	}
	walk = func(list []ast.Stmt, when []string) {
		when = slices.Clip(when)
		for _, statement := range list {
			switch s := statement.(type) {
			case *ast.IfStmt:
				condition := source(s.Cond)
				if s.Init != nil {
					condition = source(s.Init) + "; " + condition
				}
				walk(s.Body.List, append(when, condition))
				if s.Else != nil {
					walk([]ast.Stmt{s.Else}, append(when, "!("+condition+")"))
				}
			case *ast.BlockStmt:
				walk(s.List, when)
			case *ast.ForStmt:
				walk(s.Body.List, when)
			case *ast.RangeStmt:
				walk(s.Body.List, append(when, "in "+source(s.X)))
			case *ast.SwitchStmt:
				walk(s.Body.List, when)
			case *ast.CaseClause:
				var cases []string
				for _, c := range s.List {
					cases = append(cases, source(c))
				}
				walk(s.Body, append(when, "case "+strings.Join(cases, ", ")))
			case *ast.ReturnStmt, *ast.BranchStmt:
			default:
				add(statement, when)
			}
		}
	}
	walk(block.List, nil)
	return all
}

// declarations reads the source of each function, variable and constant in packages and below them.
func declarations(patterns ...string) func(sources, version) (facts, error) {
	return func(s sources, _ version) (facts, error) {
		found := facts{}
		err := s.files(patterns, func(pkg string, file *ast.File) {
			for _, decl := range file.Decls {
				withoutComments(decl)
				switch decl := decl.(type) {
				case *ast.FuncDecl:
					name := decl.Name.Name
					if decl.Recv != nil {
						name = receiver(decl.Recv.List[0].Type) + "." + name
					}
					found[pkg+" "+name] = source(decl)
				case *ast.GenDecl:
					for _, spec := range decl.Specs {
						spec, ok := spec.(*ast.ValueSpec)
						if !ok {
							continue
						}
						for _, name := range spec.Names {
							if name.Name != "_" {
								found[pkg+" "+name.Name] = source(spec)
							}
						}
					}
				}
			}
		})
		return found, err
	}
}

// messages reads the texts of more than one word in packages and below them, but for those of logs
// and metrics.
func messages(patterns ...string) func(sources, version) (facts, error) {
	return func(s sources, _ version) (facts, error) {
		found := facts{}
		err := s.files(patterns, func(pkg string, file *ast.File) {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					return !logs(n)
				case *ast.KeyValueExpr:
					return source(n.Key) != "Help"
				case *ast.Field:
					return n.Tag == nil
				case ast.Expr:
					text, ok := stringOf(n, nil)
					if ok && strings.Contains(strings.TrimSpace(text), " ") {
						found[pkg+" "+strconv.Quote(text)] = ""
					}
					return !ok
				}
				return true
			})
		})
		return found, err
	}
}

// logs reports whether a call writes to a log.
func logs(call *ast.CallExpr) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	name := selector.Sel.Name
	return source(selector.X) == "klog" || strings.HasPrefix(name, "Handle") ||
		slices.Contains([]string{"Info", "InfoS", "Error", "ErrorS", "Warning", "V"}, name)
}

// files calls f for each Go file in packages that match patterns, such as
// k8s.io/kubernetes/pkg/apis/*/validation, and below them.
func (s sources) files(patterns []string, f func(pkg string, file *ast.File)) error {
	for _, pattern := range patterns {
		module, dirs := s.split(pattern)
		roots, err := fs.Glob(os.DirFS(s[module]), dirs)
		if err != nil {
			return err
		}
		for _, root := range roots {
			err := s.folders(module, root, func(dir string) error {
				files, err := s.parse(module, dir)
				for _, file := range files {
					f(strings.TrimPrefix(module+"/"+dir, "k8s.io/kubernetes/"), file)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
