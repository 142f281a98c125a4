// Package patches checks strategic merge patches before they are merged.
//
// The library that merges them, k8s.io/apimachinery/pkg/util/strategicpatch, panics if it compares
// values that Go cannot compare: a merge key that is an object, or a null element in a list that is
// merged.
package patches

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"
)

// Directives of strategic merge patches that hold lists.
const (
	retainKeys      = "$retainKeys"
	setElementOrder = "$setElementOrder/"
	deleteElements  = "$deleteFromPrimitiveList/"
)

// Check returns the values of a patch that cannot be merged into an object, which is a pointer to
// an API type. It ignores what the library reports itself: patches that are not JSON, and fields
// that the type does not have.
func Check(patch []byte, object any) field.ErrorList {
	var fields map[string]any
	if err := json.UnmarshalCaseSensitivePreserveInts(patch, &fields); err != nil {
		return nil
	}
	schema, err := strategicpatch.NewPatchMetaFromStruct(object)
	if err != nil {
		return nil
	}
	return checkObject(fields, schema, nil)
}

func checkObject(
	fields map[string]any, schema strategicpatch.LookupPatchMeta, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch value := fields[name].(type) {
		case map[string]any:
			of, _ := trimDirective(name)
			if sub, _, err := schema.LookupPatchMetadataForStruct(of); err == nil {
				errs = append(errs, checkObject(value, sub, path.Child(name))...)
			}
		case []any:
			of, directive := trimDirective(name)
			_, ordered := fields[setElementOrder+name]
			_, shortened := fields[deleteElements+name]
			merged := directive || ordered || shortened // regardless of the patch strategy of the type
			errs = append(errs, checkList(of, value, merged, schema, path.Child(name))...)
		}
	}
	return errs
}

func checkList(
	name string, values []any, merged bool, schema strategicpatch.LookupPatchMeta, path *field.Path,
) field.ErrorList {
	if name == retainKeys {
		return checkScalars(values, path)
	}
	element, meta, err := schema.LookupPatchMetadataForSlice(name)
	if err != nil || !merged && !slices.Contains(meta.GetPatchStrategies(), "merge") {
		return nil
	}
	key := meta.GetPatchMergeKey()
	if key == "" {
		return checkScalars(values, path)
	}
	var errs field.ErrorList
	for i, value := range values {
		switch value := value.(type) {
		default:
			errs = append(errs, field.Invalid(path.Index(i), value, "must be an object"))
		case map[string]any:
			if !scalar(value[key]) {
				errs = append(errs, field.Invalid(path.Index(i).Child(key), value[key],
					"must not be an object or a list, because it is the merge key"))
			}
			errs = append(errs, checkObject(value, element, path.Index(i))...)
		}
	}
	return errs
}

// trimDirective returns the field that a directive applies to, and whether name is a directive.
func trimDirective(name string) (of string, directive bool) {
	if of, directive = strings.CutPrefix(name, setElementOrder); directive {
		return of, true
	}
	return strings.CutPrefix(name, deleteElements)
}

func checkScalars(values []any, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, value := range values {
		if value == nil || !scalar(value) {
			errs = append(errs, field.Invalid(path.Index(i), value, "must not be null, an object or a list"))
		}
	}
	return errs
}

func scalar(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}
