package kind

import (
	"context"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// newStatus makes the storage of the status subresource.
func newStatus(k *Kind[Object], store *genericregistry.Store, versions []string) rest.Storage {
	reset := k.Status.ResetFields
	if reset == nil {
		reset = []string{"spec"}
	}
	view := newView(store, resetFields(reset, versions), subresourceStrategy{
		prepare: func(ctx context.Context, obj, old Object) {
			restoreAllButStatus(obj, old)
			if k.Status.Prepare != nil {
				k.Status.Prepare(ctx, obj, old)
			}
		},
		validate:      k.Status.Validate,
		warnings:      k.Status.Warnings,
		nameOnUpdate:  k.Quirks.StatusNameOnUpdate,
		anyFinalizers: k.Quirks.StatusAnyFinalizers,
	})
	if k.Quirks.NoStatusTable {
		return &viewREST{view}
	}
	return &tableREST{viewREST{view}}
}

func newSubresource(
	store *genericregistry.Store, sub Subresource[Object], versions []string,
) rest.Storage {
	if sub.New != nil {
		return sub.New(store)
	}
	view := newView(store, resetFields(sub.ResetFields, versions), subresourceStrategy{
		prepare: sub.Prepare, validate: sub.Validate, warnings: sub.Warnings,
	})
	if sub.UpdateOnly {
		return &view
	}
	return &viewREST{view}
}

// newView makes a view of the objects in store that is updated by the strategy s.
func newView(
	store *genericregistry.Store, reset map[fieldpath.APIVersion]*fieldpath.Set,
	s subresourceStrategy,
) updateREST {
	view := *store
	// Only requests to the main resource reserve anything (see Kind.Adjust).
	view.BeginCreate, view.BeginUpdate = nil, nil
	s.strategy = store.UpdateStrategy.(strategy)
	if s.k.Refuse != nil {
		view.BeginUpdate = s.refuseUpdate
	}
	view.UpdateStrategy = s
	view.ResetFieldsStrategy = resetFieldsStrategy(reset)
	return updateREST{store: &view}
}

// subresourceStrategy is the update strategy of a view.
type subresourceStrategy struct {
	strategy
	prepare  func(ctx context.Context, obj, old Object)
	validate func(ctx context.Context, obj, old Object) field.ErrorList
	warnings func(ctx context.Context, obj, old Object) []string

	nameOnUpdate, anyFinalizers bool
}

func (s subresourceStrategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	s.prepare(ctx, obj.(Object), old.(Object))
}

func (s subresourceStrategy) ValidateUpdate(
	ctx context.Context, obj, old runtime.Object,
) (errs field.ErrorList) {
	defer traceValidation(ctx, obj)(&errs)
	if !s.anyFinalizers {
		errs = s.k.validateFinalizers(obj.(Object))
	}
	if s.nameOnUpdate {
		errs = append(errs, s.k.validateGenerateName(obj.(Object))...)
	}
	if s.validate != nil {
		errs = append(errs, s.validate(ctx, obj.(Object), old.(Object))...)
	}
	return bounded(errs)
}

func (s subresourceStrategy) WarningsOnUpdate(
	ctx context.Context, obj, old runtime.Object,
) []string {
	if s.warnings == nil {
		return nil
	}
	return s.warnings(ctx, obj.(Object), old.(Object))
}

// restoreAllButStatus copies every top-level field except the metadata and the status from old.
func restoreAllButStatus(obj, old Object) {
	to, from := reflect.ValueOf(obj).Elem(), reflect.ValueOf(old).Elem()
	for i := range to.NumField() {
		switch to.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
		default:
			to.Field(i).Set(from.Field(i))
		}
	}
}

// updateREST is a view that supports only PUT.
type updateREST struct{ store *genericregistry.Store }

func (r *updateREST) New() runtime.Object { return r.store.New() }

// Destroy leaves the store to the main resource.
func (r *updateREST) Destroy() {}

func (r *updateREST) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, _ bool,
	options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	// A subresource never creates its object.
	return r.store.Update(ctx, name, info, createValidation, updateValidation, false, options)
}

func (r *updateREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

// viewREST also supports GET, and therefore PATCH.
type viewREST struct{ updateREST }

func (r *viewREST) Get(
	ctx context.Context, name string, options *metav1.GetOptions,
) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// tableREST also supports tables.
type tableREST struct{ viewREST }

func (r *tableREST) ConvertToTable(
	ctx context.Context, obj, options runtime.Object,
) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, obj, options)
}
