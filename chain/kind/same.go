package kind

import (
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ServedAsSame declares that the kind of type H is also served as type V. V has the same fields but
// is declared in another package, as happens when a version graduates without a change. V's
// defaults are those of the hub version. [NewScheme] refuses types that differ.
func ServedAsSame[V, H Object]() Version {
	v := newVersion(copySame[V, H], copySame[H, V], nil)
	install := v.install
	v.install = func(scheme *runtime.Scheme, hub schema.GroupVersionKind) error {
		if err := sameLayout(reflect.TypeFor[V]().Elem(), reflect.TypeFor[H]().Elem(),
			map[reflect.Type]bool{}); err != nil {
			return fmt.Errorf("serve %s as %s: %w", reflect.TypeFor[H](), reflect.TypeFor[V](), err)
		}
		scheme.AddTypeDefaultingFunc(newObject[V](), func(obj any) {
			h := newObject[H]()
			copyValue(reflect.ValueOf(obj).Elem(), reflect.ValueOf(h).Elem())
			scheme.Default(h)
			copyValue(reflect.ValueOf(h).Elem(), reflect.ValueOf(obj).Elem())
		})
		return install(scheme, hub)
	}
	return v
}

// As converts obj to a type with the same fields, such as that of another version. The result
// shares memory with obj.
func As[Out Object](obj Object) Out {
	out := newObject[Out]()
	copyValue(reflect.ValueOf(obj).Elem(), reflect.ValueOf(out).Elem())
	return out
}

// sameLayout returns an error if two types differ in more than their names and packages.
func sameLayout(a, b reflect.Type, seen map[reflect.Type]bool) error {
	if a == b || seen[a] {
		return nil
	}
	seen[a] = true
	if a.Kind() != b.Kind() {
		return fmt.Errorf("%s and %s differ", a, b)
	}
	switch a.Kind() {
	case reflect.Struct:
		if a.NumField() != b.NumField() {
			return fmt.Errorf("%s has %d fields, %s has %d", a, a.NumField(), b, b.NumField())
		}
		for i := range a.NumField() {
			f, g := a.Field(i), b.Field(i)
			if f.Name != g.Name || f.Tag.Get("json") != g.Tag.Get("json") || !f.IsExported() {
				return fmt.Errorf("%s has %s where %s has %s", a, f.Name, b, g.Name)
			}
			if err := sameLayout(f.Type, g.Type, seen); err != nil {
				return err
			}
		}
		return nil
	case reflect.Map:
		if err := sameLayout(a.Key(), b.Key(), seen); err != nil {
			return err
		}
		return sameLayout(a.Elem(), b.Elem(), seen)
	case reflect.Pointer, reflect.Slice:
		return sameLayout(a.Elem(), b.Elem(), seen)
	}
	if !a.ConvertibleTo(b) {
		return fmt.Errorf("%s and %s differ", a, b)
	}
	return nil
}

// copySame copies between types of the same layout. It leaves out the kind, which depends on the
// version.
func copySame[In, Out Object](in In, out Out) error {
	copyValue(reflect.ValueOf(in).Elem(), reflect.ValueOf(out).Elem())
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return nil
}

// copyValue copies from into to. The copy is shallow where the types are the same.
func copyValue(from, to reflect.Value) {
	if from.Type() == to.Type() {
		if from.Type() != reflect.TypeFor[metav1.TypeMeta]() {
			to.Set(from)
		}
		return
	}
	switch from.Kind() {
	case reflect.Struct:
		for i := range from.NumField() {
			copyValue(from.Field(i), to.Field(i))
		}
	case reflect.Pointer:
		if from.IsNil() {
			to.SetZero()
			return
		}
		to.Set(reflect.New(to.Type().Elem()))
		copyValue(from.Elem(), to.Elem())
	case reflect.Slice:
		if from.IsNil() {
			to.SetZero()
			return
		}
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			copyValue(from.Index(i), to.Index(i))
		}
	case reflect.Map:
		if from.IsNil() {
			to.SetZero()
			return
		}
		to.Set(reflect.MakeMapWithSize(to.Type(), from.Len()))
		for key, value := range from.Seq2() {
			k, v := reflect.New(to.Type().Key()).Elem(), reflect.New(to.Type().Elem()).Elem()
			copyValue(key, k)
			copyValue(value, v)
			to.SetMapIndex(k, v)
		}
	default:
		to.Set(from.Convert(to.Type()))
	}
}
