// Package reflected makes OpenAPI definitions from Go types, like those that openapi-gen generates
// from source code, and the schemas of CRDs from these.
package reflected

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

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
	// within are the lists, maps and embedded structs that contain the present type.
	within []reflect.Type
}

// in returns the definer of what is in t.
func (d *definer) in(t reflect.Type) *definer {
	return &definer{d.known, d.ref, d.seen, append(slices.Clip(d.within), t)}
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
	s := custom(t)
	var dependencies []string
	var err error
	if s == nil {
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
func custom(t reflect.Type) *spec.Schema {
	pointer := reflect.PointerTo(t)
	if s, ok := reflect.New(t).Interface().(typed); ok {
		return &spec.Schema{SchemaProps: spec.SchemaProps{
			Type: s.OpenAPISchemaType(), Format: s.OpenAPISchemaFormat(),
		}}
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return spec.DateTimeProperty()
	case pointer.Implements(jsonMarshaler):
		return anything()
	case pointer.Implements(textMarshaler):
		return spec.StringProperty()
	}
	return nil
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
	fields := map[string]field{}
	dependencies, err := d.fields(fields, t, docs)
	for name, f := range fields {
		s.Properties[name] = *f.schema
		if f.required {
			s.Required = append(s.Required, name)
		}
	}
	slices.Sort(s.Required)
	return s, dependencies, err
}

// field is a field of a struct.
type field struct {
	schema   *spec.Schema
	required bool
}

// fields adds the fields of a struct by their names in JSON. They hide those of the structs that
// are embedded in it.
func (d *definer) fields(
	to map[string]field, t reflect.Type, docs map[string]string,
) (dependencies []string, err error) {
	own := map[string]field{}
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, rest, _ := strings.Cut(tag, ",")
		options := strings.Split(rest, ",")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		if name == "" && f.Anonymous && structOf(f.Type) != nil {
			more, err := d.embedded(to, f.Type, docs)
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
			return nil, fmt.Errorf("field %s of %s: %w", f.Name, t, err)
		}
		if slices.Contains(options, "string") {
			property = spec.StringProperty()
		}
		if docs[name] != "" {
			property.Description = docs[name]
		}
		describe(property, f)
		own[name] = field{property, f.Type.Kind() != reflect.Pointer &&
			!slices.Contains(options, "omitempty") && !slices.Contains(options, "omitzero")}
		dependencies = append(dependencies, more...)
	}
	maps.Copy(to, own)
	return dependencies, nil
}

// embedded adds the fields of an embedded struct. If it is embedded by a pointer, which may be nil,
// no field is required.
func (d *definer) embedded(
	to map[string]field, t reflect.Type, docs map[string]string,
) (dependencies []string, err error) {
	inner, optional := structOf(t), t.Kind() == reflect.Pointer
	if docer, ok := reflect.New(inner).Interface().(swaggerDocer); ok {
		docs = docer.SwaggerDoc()
	}
	if slices.Contains(d.within, inner) {
		return nil, fmt.Errorf("%s embeds itself", inner)
	}
	fields := map[string]field{}
	dependencies, err = d.in(inner).fields(fields, inner, withoutType(docs))
	for name, f := range fields {
		f.required = f.required && !optional
		to[name] = f
	}
	return dependencies, err
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
		if s := custom(t); s != nil {
			return s, nil, nil
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
		// openapi-gen says int32 of an int, which may be larger, and byte of a uint8.
		if kind == "integer" && t.Kind() != reflect.Int32 && t.Kind() != reflect.Int64 {
			format = ""
		}
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
	if slices.Contains(d.within, t) { // a list of such lists, which has no end
		s := anything()
		if t.Kind() == reflect.Map {
			s.Type = spec.StringOrArray{"object"}
		}
		return s, nil, nil
	}
	element, dependencies, err := d.in(t).of(t.Elem())
	if err != nil {
		return nil, nil, err
	}
	if t.Kind() == reflect.Map {
		return spec.MapProperty(element), dependencies, nil
	}
	return spec.ArrayProperty(element), dependencies, nil
}
