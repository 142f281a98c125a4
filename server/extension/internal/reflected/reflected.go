// Package reflected makes OpenAPI definitions from Go types, like those that openapi-gen generates
// from source code.
package reflected

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Name returns the name of the definition of a type.
func Name(t reflect.Type) string {
	if namer, ok := reflect.New(t).Interface().(openapiutil.OpenAPIModelNamer); ok {
		return namer.OpenAPIModelName()
	}
	return openapiutil.ToRESTFriendlyName(t.PkgPath() + "." + t.Name())
}

// Definitions adds the definitions of types, and of all types that they use, to known. It keeps the
// definitions that are known already. Each type must be a named struct.
func Definitions(
	known map[string]common.OpenAPIDefinition, ref common.ReferenceCallback, types ...reflect.Type,
) error {
	d := definer{known: known, ref: ref, seen: map[string]bool{}}
	for _, t := range types {
		if err := d.define(t); err != nil {
			return fmt.Errorf("OpenAPI definition of %s: %w", t, err)
		}
	}
	return nil
}

type definer struct {
	known map[string]common.OpenAPIDefinition
	ref   common.ReferenceCallback
	seen  map[string]bool
}

// swaggerDocer is implemented by types with generated descriptions, by the JSON names of their
// fields. That of the type itself has an empty name.
type swaggerDocer interface {
	SwaggerDoc() map[string]string
}

// typed is implemented by types whose JSON is not that of their fields.
type typed interface {
	OpenAPISchemaType() []string
	OpenAPISchemaFormat() string
}

// define adds the definition of a type unless it is known, and those of the types that it uses.
func (d *definer) define(t reflect.Type) error {
	name := Name(t)
	if d.seen[name] {
		return nil
	}
	d.seen[name] = true
	if _, ok := d.known[name]; ok {
		// The caller has described the type, so nobody needs to know what cannot be reflected.
		_, _, _ = d.object(t)
		return nil
	}
	value := reflect.New(t).Interface()
	if getter, ok := value.(common.OpenAPIDefinitionGetter); ok {
		d.known[name] = getter.OpenAPIDefinition()
		return nil
	}
	d.known[name] = common.OpenAPIDefinition{} // for types that contain themselves
	s, dependencies, err := d.custom(t)
	if s == nil && err == nil {
		s, dependencies, err = d.object(t)
	}
	if err != nil {
		delete(d.known, name)
		return err
	}
	slices.Sort(dependencies)
	d.known[name] = common.OpenAPIDefinition{
		Schema: *s, Dependencies: slices.Compact(dependencies),
	}
	return nil
}

// preserve is the extension of a value of which only the type is known, if that.
const preserve = "x-kubernetes-preserve-unknown-fields"

func anything() *spec.Schema {
	return &spec.Schema{VendorExtensible: spec.VendorExtensible{Extensions: spec.Extensions{
		preserve: true,
	}}}
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// custom returns the schema of a type whose JSON is not that of its fields, or nil.
func (d *definer) custom(t reflect.Type) (*spec.Schema, []string, error) {
	pointer := reflect.PointerTo(t)
	if s, ok := reflect.New(t).Interface().(typed); ok {
		return &spec.Schema{SchemaProps: spec.SchemaProps{
			Type: s.OpenAPISchemaType(), Format: s.OpenAPISchemaFormat(),
		}}, nil, nil
	}
	switch {
	case pointer.Implements(jsonMarshaler):
		return anything(), nil, nil
	case pointer.Implements(textMarshaler):
		return spec.StringProperty(), nil, nil
	}
	return nil, nil, nil
}

// object returns the schema of a struct.
func (d *definer) object(t reflect.Type) (*spec.Schema, []string, error) {
	s := &spec.Schema{SchemaProps: spec.SchemaProps{
		Type: spec.StringOrArray{"object"}, Properties: map[string]spec.Schema{},
	}}
	var docs map[string]string
	if docer, ok := reflect.New(t).Interface().(swaggerDocer); ok {
		docs = docer.SwaggerDoc()
	}
	s.Description = docs[""]
	dependencies, err := d.fields(s, t, docs)
	slices.Sort(s.Required)
	return s, dependencies, err
}

// fields adds the fields of a struct to its schema, by their names in JSON.
func (d *definer) fields(
	s *spec.Schema, t reflect.Type, docs map[string]string,
) (dependencies []string, err error) {
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, rest, _ := strings.Cut(tag, ",")
		options := strings.Split(rest, ",")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		if name == "" && f.Anonymous && structOf(f.Type) != nil {
			inner := docs
			if docer, ok := reflect.New(structOf(f.Type)).Interface().(swaggerDocer); ok {
				inner = docer.SwaggerDoc()
			}
			more, err := d.fields(s, structOf(f.Type), withoutType(inner))
			if err != nil {
				return nil, err
			}
			dependencies = append(dependencies, more...)
			continue
		}
		if !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		property, more, err := d.of(f.Type)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		if slices.Contains(options, "string") {
			property = spec.StringProperty()
		}
		if docs[name] != "" {
			property.Description = docs[name]
		}
		describe(property, f)
		s.Properties[name] = *property
		optional := f.Type.Kind() == reflect.Pointer ||
			slices.Contains(options, "omitempty") || slices.Contains(options, "omitzero")
		if !optional {
			s.Required = append(s.Required, name)
		}
		dependencies = append(dependencies, more...)
	}
	return dependencies, nil
}

// withoutType returns descriptions without that of the type.
func withoutType(docs map[string]string) map[string]string {
	fields := map[string]string{}
	for name, text := range docs {
		if name != "" {
			fields[name] = text
		}
	}
	return fields
}

// describe sets the extensions that come from tags. The tags patchStrategy and patchMergeKey are
// those of strategic merge patches. A list with a merge key is one for server-side apply too.
func describe(property *spec.Schema, f reflect.StructField) {
	if strategy := f.Tag.Get("patchStrategy"); strategy != "" {
		property.AddExtension("x-kubernetes-patch-strategy", strategy)
	}
	key := f.Tag.Get("patchMergeKey")
	switch {
	case key != "":
		property.AddExtension("x-kubernetes-patch-merge-key", key)
		property.AddExtension("x-kubernetes-list-type", "map")
		property.AddExtension("x-kubernetes-list-map-keys", []any{key})
	case f.Tag.Get("patchStrategy") == "merge" && f.Type.Kind() == reflect.Slice:
		property.AddExtension("x-kubernetes-list-type", "set")
	}
}

// structOf returns t, or what t points to, if it is a struct, and otherwise nil.
func structOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

// of returns the schema of a field or an element, and the definitions that it refers to.
func (d *definer) of(t reflect.Type) (*spec.Schema, []string, error) {
	if t.Kind() == reflect.Pointer {
		s, dependencies, err := d.of(t.Elem())
		if s != nil {
			s.Default = nil
		}
		return s, dependencies, err
	}
	if t.Kind() == reflect.Struct && t.Name() != "" {
		return d.reference(t)
	}
	if t.Kind() != reflect.Interface && t.Name() != "" && t.PkgPath() != "" {
		if s, dependencies, err := d.custom(t); s != nil || err != nil {
			return s, dependencies, err
		}
	}
	switch t.Kind() {
	case reflect.Struct:
		return d.object(t)
	case reflect.Slice, reflect.Array, reflect.Map:
		return d.composite(t)
	case reflect.Interface:
		return anything(), nil, nil
	case reflect.Bool:
		return spec.BooleanProperty(), nil, nil
	case reflect.String:
		return spec.StringProperty(), nil, nil
	}
	if kind, format := common.OpenAPITypeFormat(t.Kind().String()); kind != "" {
		return &spec.Schema{SchemaProps: spec.SchemaProps{
			Type: spec.StringOrArray{kind}, Format: format,
		}}, nil, nil
	}
	return nil, nil, fmt.Errorf("%s cannot be written as JSON", t)
}

// reference returns a reference to the definition of a struct.
func (d *definer) reference(t reflect.Type) (*spec.Schema, []string, error) {
	if err := d.define(t); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", t, err)
	}
	name := Name(t)
	s := &spec.Schema{SchemaProps: spec.SchemaProps{Ref: d.ref(name)}}
	if kind := d.known[name].Schema.Type; len(kind) == 0 || kind[0] == "object" {
		s.Default = map[string]any{}
	}
	return s, []string{name}, nil
}

// composite returns the schema of a list or a map.
func (d *definer) composite(t reflect.Type) (*spec.Schema, []string, error) {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return spec.StrFmtProperty("byte"), nil, nil
	}
	if t.Kind() == reflect.Map {
		if k := t.Key(); k.Kind() != reflect.String && !k.Implements(textMarshaler) {
			return nil, nil, fmt.Errorf("the keys of %s are not strings", t)
		}
	}
	element, dependencies, err := d.of(t.Elem())
	if err != nil {
		return nil, nil, err
	}
	if t.Kind() == reflect.Map {
		return spec.MapProperty(element), dependencies, nil
	}
	return spec.ArrayProperty(element), dependencies, nil
}
