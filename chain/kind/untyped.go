package kind

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// untyped returns the declaration with functions that take any object and call those of k. The
// storage is made from it. If its types had a type parameter, Go would compile all their methods
// once more for each kind: 7,000 functions for the built-in kinds.
func (k *Kind[T]) untyped() *Kind[Object] {
	u := &Kind[Object]{
		Plural: k.Plural, Singular: k.Singular, ShortNames: k.ShortNames, Categories: k.Categories,
		ClusterScoped: k.ClusterScoped, Enabled: k.Enabled,
		Versions: k.Versions,

		Name:           k.Name,
		Default:        untypedAct(k.Default),
		PrepareCreate:  untypedPrepareCreate(k.PrepareCreate),
		PrepareUpdate:  untypedPrepare(k.PrepareUpdate),
		Canonicalize:   untypedAct(k.Canonicalize),
		Validate:       untypedCheck(k.Validate),
		ValidateUpdate: untypedCompare(k.ValidateUpdate),
		Table: Table[Object]{
			Columns:    k.Table.Columns,
			Row:        untypedGet(k.Table.Row),
			Conditions: untypedGet(k.Table.Conditions),
		},

		Warnings:               untypedCompare(k.Warnings),
		ResetFields:            k.ResetFields,
		Generation:             k.Generation,
		IndexedField:           k.IndexedField,
		CreateOnUpdate:         k.CreateOnUpdate,
		RequireResourceVersion: k.RequireResourceVersion,
		Refuse:                 untypedCheck(k.Refuse),

		Adjust: k.Adjust,
		Wrap:   k.Wrap,
		Quirks: k.Quirks,
	}
	if s := k.Status; s != nil {
		u.Status = &Status[Object]{
			Prepare: untypedPrepare(s.Prepare), Validate: untypedCompare(s.Validate),
			Warnings: untypedCompare(s.Warnings), ResetFields: s.ResetFields,
		}
	}
	if s := k.Scale; s != nil {
		u.Scale = &Scale[Object]{
			Replicas:       untypedGet(s.Replicas),
			SetReplicas:    func(obj Object, replicas int32) { s.SetReplicas(obj.(T), replicas) },
			StatusReplicas: untypedGet(s.StatusReplicas),
			Selector:       func(obj Object) (string, error) { return s.Selector(obj.(T)) },
		}
	}
	for _, s := range k.Subresources {
		u.Subresources = append(u.Subresources, Subresource[Object]{
			Name: s.Name, New: s.New,
			Prepare: untypedPrepare(s.Prepare), Validate: untypedCompare(s.Validate),
			Warnings: untypedCompare(s.Warnings), ResetFields: s.ResetFields, UpdateOnly: s.UpdateOnly,
		})
	}
	if k.SameGeneration != nil {
		u.SameGeneration = func(obj, old Object) bool { return k.SameGeneration(obj.(T), old.(T)) }
	}
	if k.Fields != nil {
		u.Fields = make(map[string]func(Object) string, len(k.Fields))
		for name, value := range k.Fields {
			u.Fields[name] = untypedGet(value)
		}
	}
	if k.GracePeriod != nil {
		u.GracePeriod = func(ctx context.Context, obj Object, options *metav1.DeleteOptions) bool {
			return k.GracePeriod(ctx, obj.(T), options)
		}
	}
	return u
}

// The functions below return f for any object, or nil if f is nil.

func untypedAct[T Object](f func(T)) func(Object) {
	if f == nil {
		return nil
	}
	return func(obj Object) { f(obj.(T)) }
}

func untypedGet[T Object, R any](f func(T) R) func(Object) R {
	if f == nil {
		return nil
	}
	return func(obj Object) R { return f(obj.(T)) }
}

func untypedPrepareCreate[T Object](f func(context.Context, T)) func(context.Context, Object) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, obj Object) { f(ctx, obj.(T)) }
}

func untypedPrepare[T Object](
	f func(ctx context.Context, obj, old T),
) func(ctx context.Context, obj, old Object) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, obj, old Object) { f(ctx, obj.(T), old.(T)) }
}

func untypedCheck[T Object, R any](f func(context.Context, T) R) func(context.Context, Object) R {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, obj Object) R { return f(ctx, obj.(T)) }
}

// untypedCompare returns a function whose old may be nil, as in warnings about a new object.
func untypedCompare[T Object, R any](
	f func(ctx context.Context, obj, old T) R,
) func(ctx context.Context, obj, old Object) R {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, obj, old Object) R {
		before, _ := old.(T)
		return f(ctx, obj.(T), before)
	}
}
