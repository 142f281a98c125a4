package kind

import (
	"context"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// An untyped kind has all that is set in the kind, and nothing else.
func TestUntypedHasEveryField(t *testing.T) {
	t.Parallel()
	if set := setFields(reflect.ValueOf((&Kind[*corev1.Pod]{}).untyped()).Elem(), "Kind"); set != nil {
		t.Errorf("of an empty kind, %v are set", set)
	}
	k := &Kind[*corev1.Pod]{}
	fill(reflect.ValueOf(k).Elem())
	want := setFields(reflect.ValueOf(k).Elem(), "Kind")
	got := setFields(reflect.ValueOf(k.untyped()).Elem(), "Kind")
	if len(want) < 40 || !reflect.DeepEqual(got, want) {
		t.Errorf("set are\n%v, want\n%v", got, want)
	}
}

// fill sets all fields of v to something.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), value)
	case reflect.Func:
		v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) []reflect.Value { return nil }))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32:
		v.SetInt(1)
	}
}

// setFields returns the paths of the fields in v that are set.
func setFields(v reflect.Value, path string) []string {
	switch {
	case v.IsZero():
		return nil
	case v.Kind() == reflect.Pointer:
		return setFields(v.Elem(), path)
	case v.Kind() == reflect.Slice:
		return setFields(v.Index(0), path+"[0]")
	case v.Kind() != reflect.Struct:
		return []string{path}
	}
	var set []string
	for i := range v.NumField() {
		set = append(set, setFields(v.Field(i), path+"."+v.Type().Field(i).Name)...)
	}
	return set
}

// Warnings about a new object get no old one.
func TestUntypedWarningsOnCreate(t *testing.T) {
	t.Parallel()
	k := &Kind[*corev1.Pod]{Warnings: func(_ context.Context, pod, old *corev1.Pod) []string {
		if old != nil {
			return nil
		}
		return []string{"new: " + pod.Name}
	}}
	pod := &corev1.Pod{}
	pod.Name = "a"
	got := strategy{k: k.untyped()}.WarningsOnCreate(t.Context(), pod)
	if len(got) != 1 || got[0] != "new: a" {
		t.Errorf("warnings are %v", got)
	}
}
