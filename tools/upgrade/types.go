package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// A field is one of a struct of the API. Its tags are its "+k8s:", "+featureGate" and "+default"
// comments.
type field struct {
	name, typ string
	tags      []string
}

// walk calls f for each type of the API, whose name begins with its version, such as core/v1, and
// constant for each constant of a named type.
func (s sources) walk(f func(structure string, tags []string, fields []field),
	constant func(typ, value string),
) error {
	for _, at := range []struct{ module, dir, prefix string }{
		{"k8s.io/api", "", ""},
		{"k8s.io/apimachinery", "pkg/apis/meta/v1", "meta/v1"},
		{"k8s.io/apiextensions-apiserver", "pkg/apis/apiextensions/v1", "apiextensions/v1"},
		{"k8s.io/kube-aggregator", "pkg/apis/apiregistration/v1", "apiregistration/v1"},
	} {
		err := s.folders(at.module, at.dir, func(dir string) error {
			below := path.Join(at.prefix, strings.TrimPrefix(dir, at.dir))
			files, err := s.parse(at.module, dir)
			for _, file := range files {
				walkFile(below, file, f, constant)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func walkFile(version string, file *ast.File,
	f func(structure string, tags []string, fields []field), constant func(typ, value string),
) {
	for _, decl := range file.Decls {
		decl, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if structure, ok := spec.Type.(*ast.StructType); ok {
					f(version+"."+spec.Name.Name, tagsOf(decl.Doc), fieldsOf(structure))
				} else {
					f(version+"."+spec.Name.Name, tagsOf(decl.Doc), nil)
				}
			case *ast.ValueSpec:
				typ, ok := spec.Type.(*ast.Ident)
				if !ok || decl.Tok != token.CONST {
					continue
				}
				for _, value := range spec.Values {
					if literal, ok := value.(*ast.BasicLit); ok {
						constant(version+"."+typ.Name, literal.Value)
					}
				}
			}
		}
	}
}

func fieldsOf(structure *ast.StructType) []field {
	var fields []field
	for _, f := range structure.Fields.List {
		if f.Tag == nil {
			continue
		}
		tag, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			continue
		}
		name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		typ := types.ExprString(f.Type)
		if name == "" {
			name = "(" + typ + ")" // its fields are those of the struct
		}
		fields = append(fields, field{name, typ, tagsOf(f.Doc)})
	}
	return fields
}

func tagsOf(doc *ast.CommentGroup) []string {
	var tags []string
	for line := range strings.Lines(doc.Text()) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "+k8s:") || strings.HasPrefix(line, "+featureGate") ||
			strings.HasPrefix(line, "+default=") {
			tags = append(tags, line)
		}
	}
	return tags
}

// fields reads the fields of the API, with their types and the feature gates that they need.
func fields(s sources, _ version) (facts, error) {
	found := facts{}
	err := s.walk(func(structure string, _ []string, fields []field) {
		for _, f := range fields {
			value := f.typ
			for _, tag := range f.tags {
				if strings.HasPrefix(tag, "+featureGate") {
					value += " " + tag
				}
			}
			found[structure+"."+f.name] = value
		}
	}, func(string, string) {})
	return found, err
}

// typeOf returns the type of a field: core/v1.PodSpec of core/v1.PodSpec.nodeName.
func typeOf(field string) string {
	slash := strings.Index(field, "/")
	version, rest, _ := strings.Cut(field[slash+1:], ".")
	name, _, _ := strings.Cut(rest, ".")
	return field[:slash+1] + version + "." + name
}

// byType makes one line of the fields of a type that one version does not have.
func byType(lines []string, before, after facts) []string {
	count := func(of facts) map[string]int {
		n := map[string]int{}
		for name := range of {
			n[typeOf(name)]++
		}
		return n
	}
	then, now := count(before), count(after)
	var kept []string
	told := map[string]bool{}
	for _, line := range lines {
		typ := typeOf(line[2:])
		switch {
		case then[typ] > 0 && now[typ] > 0:
			kept = append(kept, line)
		case !told[typ]:
			told[typ] = true
			kept = append(kept, fmt.Sprintf("%s%s, a type with %d fields", line[:2], typ,
				then[typ]+now[typ]))
		}
	}
	return kept
}

// constants reads the constants of named types, most of which are the values that a field can have.
func constants(s sources, _ version) (facts, error) {
	found := facts{}
	err := s.walk(func(string, []string, []field) {}, func(typ, value string) {
		found[typ+" "+value] = ""
	})
	return found, err
}

// generator matches tags for generators other than that of validation.
var generator = regexp.MustCompile(`^\+k8s:[a-z-]+-gen\b`)

// tags reads the validation tags of types and fields.
func tags(s sources, _ version) (facts, error) {
	found := facts{}
	add := func(name string, tags []string) {
		for _, tag := range tags {
			if strings.HasPrefix(tag, "+k8s:") && !generator.MatchString(tag) {
				found[name+" "+tag] = ""
			}
		}
	}
	err := s.walk(func(structure string, tags []string, fields []field) {
		add(structure, tags)
		for _, f := range fields {
			add(structure+"."+f.name, f.tags)
		}
	}, func(string, string) {})
	return found, err
}
