package kind

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// newManagedFields returns the entry in metadata.managedFields of the manager that creates obj.
func newManagedFields(obj Object, manager, version, fields string) metav1.ManagedFieldsEntry {
	created := obj.GetCreationTimestamp()
	return metav1.ManagedFieldsEntry{
		Manager:    manager,
		Operation:  metav1.ManagedFieldsOperationUpdate,
		APIVersion: version,
		Time:       &created,
		FieldsType: "FieldsV1",
		FieldsV1:   metav1.NewFieldsV1(fields),
	}
}

// ownedFieldsV1 returns the fields that the creator of obj owns in the format FieldsV1.
func ownedFieldsV1(obj Object, reset *fieldpath.Set) (string, error) {
	set, err := ownedFields(obj, reset)
	if err != nil {
		return "", err
	}
	fields, err := set.ToJSON()
	return string(fields), err
}

// ownedFields returns the fields that the creator of obj owns: the JSON fields that obj has and an
// empty object has not, except for reset, which the creator cannot set. Go types do not have all
// the information that OpenAPI definitions have. Lists are assumed to be atomic, except for lists
// that strategic merge patches merge, which are an error. Maps and structs are assumed to be
// granular, except for the types that isAtomic knows.
func ownedFields(obj Object, reset *fieldpath.Set) (*fieldpath.Set, error) {
	f := fieldFinder{owned: fieldpath.NewSet(), reset: reset}
	if err := f.addStruct(nil, reflect.ValueOf(obj).Elem(), false); err != nil {
		return nil, err
	}
	return f.owned.Difference(fieldpath.NewSet(
		fieldpath.MakePathOrDie("apiVersion"),
		fieldpath.MakePathOrDie("kind"),
		fieldpath.MakePathOrDie("metadata", "name"),
		fieldpath.MakePathOrDie("metadata", "namespace"),
		fieldpath.MakePathOrDie("metadata", "creationTimestamp"),
		fieldpath.MakePathOrDie("metadata", "generation"),
		fieldpath.MakePathOrDie("metadata", "managedFields"),
		fieldpath.MakePathOrDie("metadata", "resourceVersion"),
		fieldpath.MakePathOrDie("metadata", "selfLink"),
		fieldpath.MakePathOrDie("metadata", "uid"),
	)), nil
}

// fieldFinder collects the owned fields.
type fieldFinder struct{ owned, reset *fieldpath.Set }

// addStruct adds the fields of a struct. Added means that an empty object has no such struct, so
// fields with a zero value count too if they appear in JSON.
func (f *fieldFinder) addStruct(at fieldpath.Path, v reflect.Value, added bool) error {
	for i := range v.NumField() {
		typ, value := v.Type().Field(i), v.Field(i)
		name, options, _ := strings.Cut(typ.Tag.Get("json"), ",")
		if name == "-" || !typ.IsExported() {
			continue
		}
		if name == "" && typ.Anonymous {
			if err := f.addStruct(at, value, added); err != nil {
				return err
			}
			continue
		}
		path := append(at.Copy(), fieldpath.PathElement{FieldName: &name})
		omitted := strings.Contains(options, "omitempty") && isEmpty(value) ||
			strings.Contains(options, "omitzero") && value.IsZero()
		if omitted || !added && value.IsZero() || f.reset != nil && f.reset.Has(path) {
			continue
		}
		if value.Kind() == reflect.Slice && strings.Contains(typ.Tag.Get("patchStrategy"), "merge") {
			return fmt.Errorf("%s.%s is a list that is merged by key: its managed fields are not known",
				v.Type(), typ.Name)
		}
		if err := f.addValue(path, value, added); err != nil {
			return err
		}
	}
	return nil
}

func (f *fieldFinder) addValue(at fieldpath.Path, v reflect.Value, added bool) error {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			f.owned.Insert(at)
			return nil
		}
		return f.addValue(at, v.Elem(), true)
	case reflect.Map:
		f.owned.Insert(at)
		for key, value := range v.Seq2() {
			name := key.String()
			if err := f.addValue(append(at.Copy(), fieldpath.PathElement{
				FieldName: &name,
			}), value, true); err != nil {
				return err
			}
		}
		return nil
	case reflect.Struct:
		if isLeaf(v.Type()) {
			break
		}
		if added {
			f.owned.Insert(at)
		}
		return f.addStruct(at, v, added)
	}
	f.owned.Insert(at)
	return nil
}

// isEmpty reports whether omitempty omits v.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// isLeaf reports whether a struct is a scalar in JSON, or has one owner as a whole.
func isLeaf(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) || isAtomic(t)
}

// isAtomic reports whether the OpenAPI definition of a struct says that it is atomic.
func isAtomic(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[metav1.LabelSelector](), reflect.TypeFor[rbacv1.RoleRef](),
		reflect.TypeFor[corev1.ObjectReference](), reflect.TypeFor[corev1.LocalObjectReference](),
		reflect.TypeFor[corev1.TypedLocalObjectReference](), reflect.TypeFor[corev1.SecretReference](),
		reflect.TypeFor[corev1.NodeSelector](), reflect.TypeFor[corev1.ScopeSelector]():
		return true
	}
	return false
}
