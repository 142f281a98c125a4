package features

import "k8s.io/component-base/featuregate"

// Fields are the fields of a part of an object, such as a pod's spec, that belong to a feature.
type Fields[T any] struct {
	// Gate is the feature's gate. A feature without one is off in all versions.
	Gate featuregate.Feature
	// Take reports whether a part uses the fields. If clear is true, it clears them.
	Take func(part *T, clear bool) (used bool)
}

// Drop clears the fields of features that are off, unless the old part uses them. Old is nil on
// create. On reports whether a gate is on, as [Enabled] does.
func Drop[T any](all []Fields[T], part, old *T, on func(featuregate.Feature) bool) {
	for _, f := range all {
		if f.Gate != "" && on(f.Gate) || old != nil && f.Take(old, false) {
			continue
		}
		f.Take(part, true)
	}
}

// DropField clears a field if its gate is off and the field of the old object, if any, is not set.
func DropField[V any](gate featuregate.Feature, field **V, old *V) {
	if old == nil && !Enabled(gate) {
		*field = nil
	}
}

// Take reports whether a field is set. If clear is true, it clears it.
func Take[V comparable](field *V, clear bool) bool {
	var unset V
	used := *field != unset
	if clear {
		*field = unset
	}
	return used
}

// TakeList is [Take] for a list.
func TakeList[V any](list *[]V, clear bool) bool {
	used := len(*list) > 0
	if clear {
		*list = nil
	}
	return used
}
