package kind

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkGroup returns errors for declarations that cannot work. They name the group, the kind and
// the field of the declaration.
func checkGroup(scheme *runtime.Scheme, g Group) error {
	var all []error
	plurals := sets.New[string]()
	for i, k := range g.Kinds {
		if k == nil {
			all = append(all, fmt.Errorf("group %q: Kinds[%d] is nil", g.Name, i))
			continue
		}
		name, plural, errs := k.check(scheme)
		if plural != "" && plurals.Has(plural) {
			errs = append(errs, field.Duplicate(field.NewPath("Plural"), plural))
		}
		plurals.Insert(plural)
		if err := errs.ToAggregate(); err != nil {
			all = append(all, fmt.Errorf("group %q: kind %s: %w", g.Name, name, err))
		}
	}
	return errors.Join(all...)
}

func (v *Virtual) check(scheme *runtime.Scheme) (name, plural string, errs field.ErrorList) {
	if v.New == nil {
		return v.Plural, v.Plural,
			append(checkName(v.Plural, field.NewPath("Plural")), field.Required(field.NewPath("New"), ""))
	}
	return kindName(scheme, v.New().New()), v.Plural, checkName(v.Plural, field.NewPath("Plural"))
}

func (k *Kind[T]) check(scheme *runtime.Scheme) (name, plural string, errs field.ErrorList) {
	if t := reflect.TypeFor[T](); t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return t.String(), k.Plural,
			field.ErrorList{field.Invalid(field.NewPath("T"), t.String(), "must be a pointer to a struct")}
	}
	errs = slices.Concat(
		checkName(k.Plural, field.NewPath("Plural")),
		k.checkVersions(),
		k.checkTable(),
		k.checkStatus(),
		k.checkScale(),
		k.checkSubresources(),
		checkResetFields[T](k.ResetFields, field.NewPath("ResetFields")),
		k.checkFields(),
		k.checkResourceVersions(scheme),
	)
	if k.Generation && k.SameGeneration == nil && !hasField[T]("Spec") {
		errs = append(errs, field.Forbidden(field.NewPath("Generation"),
			"the type has no field Spec: set SameGeneration"))
	}
	return kindName(scheme, newObject[T]()), k.Plural, errs
}

// kindName returns the name of obj's kind for errors. The scheme may not know the kind.
func kindName(scheme *runtime.Scheme, obj runtime.Object) string {
	if gvk, err := externalKind(scheme, obj); err == nil {
		return gvk.Kind
	}
	return reflect.TypeOf(obj).Elem().Name()
}

func checkName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	for _, msg := range validation.IsDNS1035Label(name) {
		errs = append(errs, field.Invalid(at, name, msg))
	}
	return errs
}

func (k *Kind[T]) checkVersions() field.ErrorList {
	var errs field.ErrorList
	seen := sets.New(reflect.TypeFor[T]())
	for i, v := range k.Versions {
		at := field.NewPath("Versions").Index(i)
		if v.install == nil {
			errs = append(errs, field.Required(at, "make a version with ServedAs or ServedAsSame"))
			continue
		}
		typ := reflect.TypeOf(v.example)
		if v.hub != reflect.TypeFor[T]() {
			errs = append(errs, field.Invalid(at, typ.String(),
				fmt.Sprintf("converts to %s, not to %s", v.hub, reflect.TypeFor[T]())))
		}
		if seen.Has(typ) {
			errs = append(errs, field.Duplicate(at, typ.String()))
		}
		seen.Insert(typ)
		if !v.converts {
			errs = append(errs, field.Required(at, "both conversion functions"))
		}
		for _, label := range v.fields {
			if !k.selects(label) {
				errs = append(errs, field.Invalid(at.Child("WithFields"), label, "is not one of Fields"))
			}
		}
	}
	return errs
}

func (k *Kind[T]) checkTable() field.ErrorList {
	at := field.NewPath("Table")
	var errs field.ErrorList
	switch row := k.Table.Row != nil; {
	case row && len(k.Table.Columns) == 0:
		errs = append(errs, field.Required(at.Child("Columns"), "Row is set"))
	case !row && len(k.Table.Columns) > 0:
		errs = append(errs, field.Required(at.Child("Row"), "Columns is set"))
	case !row && k.Table.Conditions != nil:
		errs = append(errs, field.Required(at.Child("Row"), "Conditions is set"))
	case !row && len(k.Quirks.HiddenAnnotations) > 0:
		errs = append(errs, field.Required(at.Child("Row"), "Quirks.HiddenAnnotations is set"))
	}
	return errs
}

func (k *Kind[T]) checkStatus() field.ErrorList {
	if k.Status != nil {
		at := field.NewPath("Status")
		errs := checkResetFields[T](k.Status.ResetFields, at.Child("ResetFields"))
		if !hasField[T]("Status") {
			errs = append(errs, field.Forbidden(at, "the type has no field Status"))
		}
		return errs
	}
	var errs field.ErrorList
	for name, set := range map[string]bool{
		"StatusOnCreate":      k.Quirks.StatusOnCreate,
		"StatusWithSpec":      k.Quirks.StatusWithSpec != nil,
		"StatusNameOnUpdate":  k.Quirks.StatusNameOnUpdate,
		"StatusAnyFinalizers": k.Quirks.StatusAnyFinalizers,
		"NoStatusTable":       k.Quirks.NoStatusTable,
	} {
		if set {
			errs = append(errs, field.Forbidden(field.NewPath("Quirks", name), "there is no Status"))
		}
	}
	return errs
}

func (k *Kind[T]) checkScale() field.ErrorList {
	if k.Scale == nil {
		return nil
	}
	var errs field.ErrorList
	v := reflect.ValueOf(*k.Scale)
	for i := range v.NumField() {
		if v.Field(i).IsNil() {
			errs = append(errs, field.Required(field.NewPath("Scale", v.Type().Field(i).Name), ""))
		}
	}
	return errs
}

func (k *Kind[T]) checkSubresources() field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	if k.Status != nil {
		seen.Insert("status")
	}
	if k.Scale != nil {
		seen.Insert("scale")
	}
	for i, sub := range k.Subresources {
		at := field.NewPath("Subresources").Index(i)
		errs = append(errs, checkName(sub.Name, at.Child("Name"))...)
		if seen.Has(sub.Name) {
			errs = append(errs, field.Duplicate(at.Child("Name"), sub.Name))
		}
		seen.Insert(sub.Name)
		errs = append(errs, checkResetFields[T](sub.ResetFields, at.Child("ResetFields"))...)
		if sub.New == nil {
			if sub.Prepare == nil {
				errs = append(errs, field.Required(at.Child("Prepare"), "without New"))
			}
			continue
		}
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"Prepare", sub.Prepare != nil},
			{"Validate", sub.Validate != nil},
			{"Warnings", sub.Warnings != nil},
			{"ResetFields", sub.ResetFields != nil},
			{"UpdateOnly", sub.UpdateOnly},
		} {
			if f.set {
				errs = append(errs, field.Forbidden(at.Child(f.name), "the storage that New makes ignores it"))
			}
		}
	}
	return errs
}

func (k *Kind[T]) checkFields() field.ErrorList {
	var errs field.ErrorList
	for label, value := range k.Fields {
		at := field.NewPath("Fields").Key(label)
		if value == nil {
			errs = append(errs, field.Required(at, ""))
		}
		if label == "metadata.name" || label == "metadata.namespace" {
			errs = append(errs, field.Forbidden(at, "the engine selects by it"))
		}
	}
	if _, ok := k.Fields[k.IndexedField]; !ok && k.IndexedField != "" {
		errs = append(errs, field.Invalid(field.NewPath("IndexedField"),
			k.IndexedField, "is not one of Fields"))
	}
	return errs
}

// selects reports whether label is a field selector of the kind.
func (k *Kind[T]) selects(label string) bool {
	_, ok := k.Fields[label]
	return ok || label == "metadata.name" || label == "metadata.namespace"
}

func (k *Kind[T]) checkResourceVersions(scheme *runtime.Scheme) field.ErrorList {
	unconditional := k.Quirks.UnconditionalVersions
	at := field.NewPath("Quirks", "UnconditionalVersions")
	if len(unconditional) == 0 {
		return nil
	}
	if !k.RequireResourceVersion {
		return field.ErrorList{
			field.Forbidden(at, "RequireResourceVersion is not set, so all versions are unconditional"),
		}
	}
	gvs, _, err := k.servedVersions(scheme)
	if err != nil {
		return nil // register reports it
	}
	served := sets.New[string]()
	for _, gv := range gvs {
		served.Insert(gv.Version)
	}
	var errs field.ErrorList
	for i, version := range unconditional {
		if !served.Has(version) {
			errs = append(errs, field.NotSupported(at.Index(i), version, sets.List(served)))
		}
	}
	return errs
}

// checkResetFields requires each path to begin with a JSON field of the type.
func checkResetFields[T Object](paths []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	known := jsonFields(reflect.TypeFor[T]().Elem())
	for i, path := range paths {
		elements := strings.Split(path, ".")
		if !known.Has(elements[0]) || slices.Contains(elements, "") {
			errs = append(errs, field.Invalid(at.Index(i), path, "is not the dotted path of a field"))
		}
	}
	return errs
}

// jsonFields returns the JSON names of a struct's fields.
func jsonFields(t reflect.Type) sets.Set[string] {
	names := sets.New[string]()
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct {
			names = names.Union(jsonFields(f.Type))
			continue
		}
		names.Insert(name)
	}
	return names.Delete("", "-")
}

func hasField[T Object](name string) bool {
	_, ok := reflect.TypeFor[T]().Elem().FieldByName(name)
	return ok
}
