package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// SubresourceField returns the name of the Go field that the subresource changes.
func (p Project) SubresourceField() string { return CamelCase(p.Subresource) }

// SubresourceJSON returns the name of that field in JSON.
func (p Project) SubresourceJSON() string { return lowerFirst(p.SubresourceField()) }

// View returns the name of the function that declares the subresource.
func (p Project) View() string { return p.Kind.Camel() + p.SubresourceField() + "View" }

func lowerFirst(name string) string {
	return string(unicode.ToLower(rune(name[0]))) + name[1:]
}

// ValidateSubresource returns what is wrong with the name of a subresource.
func ValidateSubresource(name string) error {
	if problems := validation.IsDNS1035Label(name); problems != nil {
		return fmt.Errorf("--subresource: %q is not the name of a subresource: %s", name, problems[0])
	}
	return nil
}

var declaredPlural = regexp.MustCompile(`\bPlural:\s*"([a-z0-9-]+)"`)

// AddSubresource adds a subresource to a kind of the extension API server in dir. If it fails, it
// changes nothing.
func AddSubresource(dir string, k Kind, name string) (added []string, err error) {
	p := Project{Kind: k, Subresource: name}
	declaration, types := p.declaration(), p.inVersion(k.Lower()+"_types.go")
	existing, err := p.open(dir, declaration, types)
	if err != nil {
		return nil, err
	}
	imported := fmt.Appendf(nil, "%s %q", k.Import(), path.Join(p.Module, "api", k.Package(), k.Version))
	plural := declaredPlural.FindSubmatch(existing[declaration])
	if existing[types] == nil || plural == nil || !bytes.Contains(existing[declaration], imported) {
		return nil, fmt.Errorf("%s declares no kind %s of %s/%s: add it with kinproc extension add kind",
			filepath.Join(dir, filepath.FromSlash(declaration)), k.Kind, k.Group, k.Version)
	}
	p.Kind.Plural = string(plural[1])
	p.Kind.ClusterScoped = bytes.Contains(existing[declaration], []byte("ClusterScoped: true"))
	if p.declares(existing[declaration]) {
		return nil, fmt.Errorf("%s already has the subresource %s", declaration, name)
	}
	edited := maps.Clone(existing)
	switch name {
	case "status":
		err = edited.addTo(declaration, "scale", fmt.Sprintf("Status: &kind.Status[*%s.%s]{},",
			k.Import(), k.Kind))
	case "scale":
		err = edited.addScale(p, declaration, types)
	default:
		err = edited.addView(p, declaration, types)
	}
	if err != nil {
		return nil, err
	}
	return edited.update(dir, existing)
}

// declares reports whether a declaration has the subresource.
func (p Project) declares(declaration []byte) bool {
	has := func(text string) bool { return bytes.Contains(declaration, []byte(text)) }
	switch p.Subresource {
	case "status":
		return has("&kind.Status[")
	case "scale":
		return has("&kind.Scale[") || has(p.Kind.Camel()+"Scale()")
	}
	return has(fmt.Sprintf("Name: %q", p.Subresource)) || has(p.View()+"()")
}

// addTo adds a line to a declaration.
func (f Files) addTo(declaration, name, line string) (err error) {
	if !hasMark(f[declaration], name) {
		return fmt.Errorf("%s has no line %q: put it where %s belongs, and try again", declaration,
			mark(name), line)
	}
	f[declaration], err = insert(f[declaration], name, line)
	return err
}

// addScale adds the subresource scale.
func (f Files) addScale(p Project, declaration, types string) error {
	return errors.Join(
		f.addFields(types, p.Kind.Kind+"Spec",
			structField{"Replicas", "int32", "How many replicas are wanted."}),
		f.addFields(types, p.Kind.Kind+"Status",
			structField{"Replicas", "int32", "How many replicas there are."},
			structField{"Selector", "string", "The label selector of the replicas."}),
		f.addTo(declaration, "scale", "Scale: "+p.Kind.Camel()+"Scale(),"),
		f.fill(p, "scale"),
	)
}

// addView adds a subresource that changes a field of the status.
func (f Files) addView(p Project, declaration, types string) error {
	return errors.Join(
		f.addFields(types, p.Kind.Kind+"Status", structField{
			p.SubresourceField(), "string", "What was written to the subresource " + p.Subresource + ".",
		}),
		f.addTo(declaration, "subresources", p.View()+"(),"),
		f.fill(p, "view"),
	)
}

// structField is a field of a Go type.
type structField struct{ name, typ, comment string }

// addFields adds fields at the end of a struct type of a Go file. Fields that it has already must
// be of the same types.
func (f Files) addFields(file, typ string, fields ...structField) error {
	positions, content := token.NewFileSet(), f[file]
	parsed, err := parser.ParseFile(positions, file, content, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	list := structFields(parsed, typ)
	if list == nil {
		return fmt.Errorf("%s has no struct %s, which is to have the field %s", file, typ, fields[0].name)
	}
	var text strings.Builder
	for _, wanted := range fields {
		switch is := fieldType(list, wanted.name); is {
		case wanted.typ:
		case "":
			fmt.Fprintf(&text, "// %s\n%s %s `json:\"%s,omitempty\"`\n",
				wanted.comment, wanted.name, wanted.typ, lowerFirst(wanted.name))
		default:
			return fmt.Errorf("%s: the field %s of %s is of the type %s, not %s", file, wanted.name, typ,
				is, wanted.typ)
		}
	}
	end := positions.Position(list.Closing).Offset
	f[file], err = format.Source(slices.Concat(content[:end], []byte(text.String()), content[end:]))
	return err
}

// structFields returns the fields of a struct type, or nil.
func structFields(file *ast.File, name string) *ast.FieldList {
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range decl.Specs {
			if spec, ok := s.(*ast.TypeSpec); ok && spec.Name.Name == name {
				if typ, ok := spec.Type.(*ast.StructType); ok {
					return typ.Fields
				}
			}
		}
	}
	return nil
}

// fieldType returns the type of a field, "" if there is no such field.
func fieldType(fields *ast.FieldList, name string) string {
	for _, f := range fields.List {
		for _, n := range f.Names {
			if n.Name != name {
				continue
			}
			var text strings.Builder
			if err := format.Node(&text, token.NewFileSet(), f.Type); err != nil {
				return err.Error()
			}
			return text.String()
		}
	}
	return ""
}
