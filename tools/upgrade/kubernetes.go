package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// resources reads the discovery documents of a kube-apiserver with everything on.
func resources(s sources, _ version) (facts, error) {
	data, err := s.open("k8s.io/kubernetes", "api/discovery/aggregated_v2.json")
	if err != nil {
		return nil, err
	}
	type resource struct {
		Resource, Subresource, Scope  string
		ResponseKind                  struct{ Group, Version, Kind string }
		Verbs, ShortNames, Categories []string
		Subresources                  []resource
	}
	var document struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct {
				Version   string
				Resources []resource
			}
		}
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	found := facts{}
	describe := func(r resource) string {
		slices.Sort(r.Verbs)
		parts := []string{r.ResponseKind.Kind, r.Scope, strings.Join(r.Verbs, ",")}
		if len(r.ShortNames) > 0 {
			parts = append(parts, "short "+strings.Join(r.ShortNames, ","))
		}
		if len(r.Categories) > 0 {
			parts = append(parts, "in "+strings.Join(r.Categories, ","))
		}
		return strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
	}
	for _, group := range document.Items {
		for _, v := range group.Versions {
			for _, r := range v.Resources {
				name := group.Metadata.Name + "/" + v.Version + " " + r.Resource
				found[name] = describe(r)
				for _, sub := range r.Subresources {
					found[name+"/"+sub.Subresource] = describe(sub)
				}
			}
		}
	}
	return found, nil
}

// plugins reads the admission plugins of kube-apiserver, and which one each of them follows.
func plugins(s sources, _ version) (facts, error) {
	file, err := s.parseFile("k8s.io/kubernetes", "pkg/kubeapiserver/options/plugins.go")
	if err != nil {
		return nil, err
	}
	found := facts{}
	previous := "nothing"
	for _, element := range elements(valueOf(file, "AllOrderedPlugins")) {
		name, err := s.named(file, element)
		if err != nil {
			return nil, err
		}
		found[name] = "after " + previous
		previous = name
	}
	return found, nil
}

// named returns the string that an expression such as admit.PluginName is in another package.
func (s sources) named(file *ast.File, x ast.Expr) (string, error) {
	selector, ok := x.(*ast.SelectorExpr)
	if !ok {
		return "", fmt.Errorf("%s is of another form than expected", source(x))
	}
	from := source(selector.X)
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return "", err
		}
		if name := path.Base(imported); spec.Name == nil && name != from ||
			spec.Name != nil && spec.Name.Name != from {
			continue
		}
		module, dir := s.split(imported)
		files, err := s.parse(module, dir)
		if err != nil {
			return "", err
		}
		if text, ok := stringConstants(files)[selector.Sel.Name]; ok {
			return text, nil
		}
	}
	return "", fmt.Errorf("no package has %s", source(x))
}

// split returns the module of a package, and its folder there.
func (s sources) split(pkg string) (module, dir string) {
	for module := range s {
		if dir, ok := strings.CutPrefix(pkg, module+"/"); ok {
			return module, dir
		}
	}
	return "", pkg
}

// loops reads the names of the loops of kube-controller-manager.
func loops(s sources, _ version) (facts, error) {
	return constantsOf(s, "cmd/kube-controller-manager/names")
}

// schedulerPlugins reads the names of the plugins of kube-scheduler.
func schedulerPlugins(s sources, _ version) (facts, error) {
	return constantsOf(s, "pkg/scheduler/framework/plugins/names")
}

func constantsOf(s sources, dir string) (facts, error) {
	files, err := s.parse("k8s.io/kubernetes", dir)
	found := facts{}
	for _, text := range stringConstants(files) {
		found[text] = ""
	}
	return found, err
}

// defaultPlugins reads which plugins kube-scheduler runs at each point, in which order and with
// which weight, with the default feature gates; and what it does about the gates.
func defaultPlugins(s sources, _ version) (facts, error) {
	file, err := s.parseFile("k8s.io/kubernetes",
		"pkg/scheduler/apis/config/testing/defaults/defaults.go")
	if err != nil {
		return nil, err
	}
	found := facts{}
	for _, point := range elements(valueOf(file, "ExpandedPluginsV1")) {
		point, ok := point.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		previous := "nothing"
		for _, plugin := range elements(keyed(point.Value)["Enabled"]) {
			of := keyed(plugin)
			name := strings.TrimPrefix(source(of["Name"]), "names.")
			found[source(point.Key)+" "+name] = "after " + previous
			if weight := of["Weight"]; weight != nil {
				found[source(point.Key)+" "+name] += ", weight " + source(weight)
			}
			previous = name
		}
	}
	file, err = s.parseFile("k8s.io/kubernetes", "pkg/scheduler/apis/config/v1/default_plugins.go")
	if err != nil {
		return nil, err
	}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == "applyFeatureGates" {
			for _, statement := range statements(f.Body) {
				found["applyFeatureGates "+statement] = ""
			}
		}
	}
	return found, nil
}

// columns reads the columns of tables in packages.
func columns(patterns ...string) func(sources, version) (facts, error) {
	return func(s sources, _ version) (facts, error) {
		found := facts{}
		err := s.files(patterns, func(pkg string, file *ast.File) { columnsOf(file, pkg, found) })
		return found, err
	}
}

// columnsOf adds the columns in a file to found. Their owner is the variable that has them,
// such as podColumnDefinitions, or the package.
func columnsOf(file *ast.File, pkg string, found facts) {
	ast.Inspect(file, func(n ast.Node) bool {
		of := pkg
		var list ast.Expr
		switch n := n.(type) {
		case *ast.AssignStmt:
			list = n.Rhs[0]
			if name, ok := n.Lhs[0].(*ast.Ident); ok {
				of = strings.TrimSuffix(name.Name, "ColumnDefinitions")
			}
		case *ast.KeyValueExpr:
			list = n.Value
		}
		literal, ok := list.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if array, ok := literal.Type.(*ast.ArrayType); !ok ||
			!strings.HasSuffix(source(array.Elt), "TableColumnDefinition") {
			return true
		}
		previous := "nothing"
		for _, column := range literal.Elts {
			values := keyed(column)
			name := source(values["Name"])
			text := "after " + previous
			for _, key := range []string{"Type", "Format", "Priority", "Description"} {
				// Other descriptions are those of fields.
				if value, ok := values[key].(*ast.BasicLit); ok {
					text += ", " + strings.ToLower(key) + " " + value.Value
				}
			}
			found[of+" "+name] = text
			previous = name
		}
		return false
	})
}

// stringConstants returns the constants of a package that are strings.
func stringConstants(files []*ast.File) map[string]string {
	found := map[string]string{}
	for _, file := range files {
		for _, decl := range file.Decls {
			decl, ok := decl.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST {
				continue
			}
			for _, spec := range decl.Specs {
				spec := spec.(*ast.ValueSpec)
				for i, value := range spec.Values {
					if text, ok := stringOf(value, nil); ok {
						found[spec.Names[i].Name] = text
					}
				}
			}
		}
	}
	return found
}
