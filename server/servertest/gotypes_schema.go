package servertest

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// schemaOf is a schema of a CRD, which describes a value.
type schemaOf = apiextensionsv1.JSONSchemaProps

// property is a field of a struct.
type property struct {
	schema   schemaOf
	required bool
}

// objectSchema returns the schema of a type of Kubernetes objects. The API server has its own for
// metadata, and allows no other here.
func objectSchema(t reflect.Type) (*schemaOf, error) {
	fields := map[string]property{}
	r := schemaReader{[]reflect.Type{t}}
	if err := r.addFields(fields, t); err != nil {
		return nil, err
	}
	for _, name := range []string{"apiVersion", "kind"} {
		if fields[name].schema.Type != "string" {
			return nil, errors.New("the type does not embed metav1.TypeMeta")
		}
	}
	if _, ok := fields["metadata"]; !ok {
		return nil, errors.New("the type does not embed metav1.ObjectMeta as metadata")
	}
	fields["metadata"] = property{schema: schemaOf{Type: "object"}}
	schema := structSchema(fields)
	return &schema, nil
}

// schemaReader makes schemas of types.
type schemaReader struct {
	// within are the types that contain the present one.
	within []reflect.Type
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// anything returns the schema of a value of which only the type is known, if that.
func anything(ofType string) schemaOf {
	return schemaOf{Type: ofType, XPreserveUnknownFields: new(true)}
}

// quantityPattern matches quantities that are strings: 1, 0.5, 100m, 2Gi, 1e3.
const quantityPattern = `^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)` +
	`([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$`

// known returns the schema of a type whose JSON is not that of its fields.
func known(t reflect.Type) (schemaOf, bool) {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[metav1.Time](),
		reflect.TypeFor[metav1.MicroTime]():
		return schemaOf{Type: "string", Format: "date-time"}, true
	case reflect.TypeFor[metav1.Duration]():
		return schemaOf{Type: "string"}, true
	case reflect.TypeFor[intstr.IntOrString]():
		return schemaOf{XIntOrString: true}, true
	case reflect.TypeFor[resource.Quantity]():
		return schemaOf{XIntOrString: true, Pattern: quantityPattern}, true
	case reflect.TypeFor[runtime.RawExtension]():
		return anything("object"), true
	}
	switch pointer := reflect.PointerTo(t); {
	case pointer.Implements(jsonMarshaler):
		return anything(""), true
	case pointer.Implements(textMarshaler):
		return schemaOf{Type: "string"}, true
	}
	return schemaOf{}, false
}

// of returns the schema of a type.
func (r *schemaReader) of(t reflect.Type) (schemaOf, error) {
	if s, ok := known(t); ok {
		return s, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return schemaOf{Type: "boolean"}, nil
	case reflect.String:
		return schemaOf{Type: "string"}, nil
	case reflect.Int32:
		return schemaOf{Type: "integer", Format: "int32"}, nil
	case reflect.Int64:
		return schemaOf{Type: "integer", Format: "int64"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Uint, reflect.Uint8, reflect.Uint16,
		reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return schemaOf{Type: "integer"}, nil
	case reflect.Float32, reflect.Float64:
		return schemaOf{Type: "number"}, nil
	case reflect.Pointer:
		return r.of(t.Elem())
	case reflect.Interface:
		return anything(""), nil
	case reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		return r.composite(t)
	}
	return schemaOf{}, fmt.Errorf("%s cannot be written as JSON", t)
}

// composite returns the schema of a type that contains others.
func (r *schemaReader) composite(t reflect.Type) (schemaOf, error) {
	if slices.Contains(r.within, t) {
		// The schema of a type that contains itself would have no end.
		if t.Kind() == reflect.Struct || t.Kind() == reflect.Map {
			return anything("object"), nil
		}
		return anything(""), nil
	}
	inner := schemaReader{append(slices.Clip(r.within), t)}
	switch t.Kind() {
	case reflect.Struct:
		fields := map[string]property{}
		err := inner.addFields(fields, t)
		return structSchema(fields), err
	case reflect.Map:
		if k := t.Key(); k.Kind() != reflect.String && !k.Implements(textMarshaler) {
			return schemaOf{}, fmt.Errorf("the keys of %s are not strings", t)
		}
		values, err := inner.of(t.Elem())
		return schemaOf{
			Type:                 "object",
			AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &values},
		}, err
	}
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return schemaOf{Type: "string", Format: "byte"}, nil
	}
	items, err := inner.of(t.Elem())
	return schemaOf{
		Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items},
	}, err
}

// addFields adds the fields of a struct by their names in JSON.
func (r *schemaReader) addFields(to map[string]property, t reflect.Type) error {
	type named struct {
		reflect.StructField
		name    string
		options []string
	}
	var own []named
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		if tag == "-" {
			continue
		}
		name, rest, _ := strings.Cut(tag, ",")
		if f.Anonymous && name == "" && isStruct(f.Type) {
			if err := r.addEmbedded(to, f.Type); err != nil {
				return err
			}
			continue
		}
		if !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		own = append(own, named{f, name, strings.Split(rest, ",")})
	}
	// The fields of a struct hide those of the structs that are embedded in it.
	for _, f := range own {
		s, err := r.of(f.Type)
		if err != nil {
			return fmt.Errorf("field %s of %s: %w", f.Name, t, err)
		}
		if slices.Contains(f.options, "string") {
			s = schemaOf{Type: "string"}
		}
		to[f.name] = property{s, f.Type.Kind() != reflect.Pointer &&
			!slices.Contains(f.options, "omitempty") && !slices.Contains(f.options, "omitzero")}
	}
	return nil
}

func isStruct(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}

// addEmbedded adds the fields of an embedded struct. If it is embedded by a pointer, which may be
// nil, no field is required.
func (r *schemaReader) addEmbedded(to map[string]property, t reflect.Type) error {
	optional := t.Kind() == reflect.Pointer
	if optional {
		t = t.Elem()
	}
	if slices.Contains(r.within, t) {
		return fmt.Errorf("%s embeds itself", t)
	}
	inner := schemaReader{append(slices.Clip(r.within), t)}
	fields := map[string]property{}
	if err := inner.addFields(fields, t); err != nil {
		return err
	}
	for name, p := range fields {
		p.required = p.required && !optional
		to[name] = p
	}
	return nil
}

func structSchema(fields map[string]property) schemaOf {
	s := schemaOf{Type: "object", Properties: map[string]schemaOf{}}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		s.Properties[name] = fields[name].schema
		if fields[name].required {
			s.Required = append(s.Required, name)
		}
	}
	return s
}
