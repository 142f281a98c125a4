package kind

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// withGoNames makes errors show values of API types with the names of their Go fields, and with the
// fields that are not set. kube-apiserver does so, because its internal types have no JSON names,
// and clients match it.
func withGoNames(errs field.ErrorList) field.ErrorList {
	for _, err := range errs {
		if v := reflect.ValueOf(err.BadValue); v.IsValid() && ofAPI(v.Type()) {
			err.BadValue = goNames{v}
		}
	}
	return errs
}

// ofAPI reports whether values of a type are shown with the names of Go fields: structs of
// k8s.io/api, and pointers to them, lists and maps of them.
func ofAPI(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return ofAPI(t.Elem())
	case reflect.Struct:
		return strings.HasPrefix(t.PkgPath(), "k8s.io/api/")
	}
	return false
}

// goNames is a value that is encoded with the names of Go fields.
type goNames struct{ value reflect.Value }

// MarshalJSON implements json.Marshaler.
func (g goNames) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	err := writeGoNames(&b, g.value)
	return b.Bytes(), err
}

func writeGoNames(b *bytes.Buffer, v reflect.Value) error {
	if !ofAPI(v.Type()) || v.Kind() != reflect.Struct && v.IsNil() {
		data, err := json.Marshal(v.Interface())
		b.Write(data)
		return err
	}
	switch v.Kind() {
	case reflect.Pointer:
		return writeGoNames(b, v.Elem())
	case reflect.Slice:
		return writeAll(b, '[', ']', v.Len(), func(i int) error { return writeGoNames(b, v.Index(i)) })
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(x, y reflect.Value) int {
			return strings.Compare(x.String(), y.String())
		})
		return writeAll(b, '{', '}', len(keys), func(i int) error {
			return writeNamed(b, keys[i].String(), v.MapIndex(keys[i]))
		})
	}
	var fields []reflect.StructField
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.IsExported() && !f.Anonymous {
			fields = append(fields, f)
		}
	}
	return writeAll(b, '{', '}', len(fields), func(i int) error {
		return writeNamed(b, fields[i].Name, v.FieldByIndex(fields[i].Index))
	})
}

func writeNamed(b *bytes.Buffer, name string, v reflect.Value) error {
	quoted, err := json.Marshal(name)
	if err != nil {
		return err
	}
	b.Write(quoted)
	b.WriteByte(':')
	return writeGoNames(b, v)
}

// writeAll writes n elements between an opening and a closing byte.
func writeAll(b *bytes.Buffer, open, end byte, n int, write func(i int) error) error {
	b.WriteByte(open)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := write(i); err != nil {
			return err
		}
	}
	b.WriteByte(end)
	return nil
}
