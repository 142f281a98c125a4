package apiserver

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	v1 "github.com/kinproc/kinproc/examples/portrule/v1"
)

// strategy decides about writes to port rules.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

func (strategy) NamespaceScoped() bool                         { return true }
func (strategy) AllowCreateOnUpdate(context.Context) bool      { return false }
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return true }
func (strategy) Canonicalize(runtime.Object)                   {}

func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	obj.(*v1.PortRule).Status = v1.PortRuleStatus{}
}

func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	obj.(*v1.PortRule).Status = old.(*v1.PortRule).Status
}

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validate(obj.(*v1.PortRule))
}

func (strategy) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	return validate(obj.(*v1.PortRule))
}

func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string        { return nil }
func (strategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string { return nil }

func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(v1.GroupVersion.String()): fieldpath.NewSet(
			fieldpath.MakePathOrDie("status")),
	}
}

func validate(p *v1.PortRule) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if p.Spec.From < 1 || p.Spec.From > 65535 {
		errs = append(errs, field.Invalid(spec.Child("from"), p.Spec.From, "is not a port"))
	}
	if p.Spec.To < p.Spec.From || p.Spec.To > 65535 {
		errs = append(errs, field.Invalid(spec.Child("to"), p.Spec.To, "must be from spec.from to 65535"))
	}
	if p.Spec.Protocol != "TCP" && p.Spec.Protocol != "UDP" {
		errs = append(errs, field.NotSupported(spec.Child("protocol"), p.Spec.Protocol,
			[]string{"TCP", "UDP"}))
	}
	return errs
}

// statusStrategy decides about writes to the status.
type statusStrategy struct{ strategy }

func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	obj.(*v1.PortRule).Spec = old.(*v1.PortRule).Spec
}

func (statusStrategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(v1.GroupVersion.String()): fieldpath.NewSet(
			fieldpath.MakePathOrDie("spec")),
	}
}

// statusREST is the storage of the status.
type statusREST struct{ store *genericregistry.Store }

func (r *statusREST) New() runtime.Object { return &v1.PortRule{} }
func (r *statusREST) Destroy()            {} // the store is shared

func (r *statusREST) Get(
	ctx context.Context, name string, options *metav1.GetOptions,
) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

func (r *statusREST) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool,
	options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, info, create, update, false, options)
}

func (r *statusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

func (r *statusREST) ConvertToTable(
	ctx context.Context, obj, options runtime.Object,
) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, obj, options)
}

// newStorage returns the storage of port rules and of their status.
func newStorage(
	scheme *runtime.Scheme, options generic.RESTOptionsGetter,
) (map[string]rest.Storage, error) {
	s := strategy{scheme, names.SimpleNameGenerator}
	store := &genericregistry.Store{
		NewFunc:     func() runtime.Object { return &v1.PortRule{} },
		NewListFunc: func() runtime.Object { return &v1.PortRuleList{} },
		PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: attributes}
		},
		DefaultQualifiedResource:  v1.GroupVersion.WithResource("portrules").GroupResource(),
		SingularQualifiedResource: v1.GroupVersion.WithResource("portrule").GroupResource(),
		CreateStrategy:            s,
		UpdateStrategy:            s,
		DeleteStrategy:            s,
		ResetFieldsStrategy:       s,
		TableConvertor:            tables{},
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{
		RESTOptions: options, AttrFunc: attributes,
	}); err != nil {
		return nil, err
	}
	status := *store
	status.UpdateStrategy, status.ResetFieldsStrategy = statusStrategy{s}, statusStrategy{s}
	return map[string]rest.Storage{
		"portrules": store, "portrules/status": &statusREST{&status},
	}, nil
}

func attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	p, ok := obj.(*v1.PortRule)
	if !ok {
		return nil, nil, fmt.Errorf("not a port rule: %T", obj)
	}
	return p.Labels, generic.ObjectMetaFieldsSet(&p.ObjectMeta, true), nil
}

// tables prints port rules.
type tables struct{}

func (tables) ConvertToTable(
	_ context.Context, obj, _ runtime.Object,
) (*metav1.Table, error) {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name"}, {Name: "Ports", Type: "string"},
		{Name: "Protocol", Type: "string"}, {Name: "Phase", Type: "string"},
	}}
	row := func(obj runtime.Object) error {
		p := obj.(*v1.PortRule)
		ports := fmt.Sprintf("%d-%d", p.Spec.From, p.Spec.To)
		table.Rows = append(table.Rows, metav1.TableRow{
			Cells:  []any{p.Name, ports, p.Spec.Protocol, p.Status.Phase},
			Object: runtime.RawExtension{Object: obj},
		})
		return nil
	}
	list, ok := obj.(*v1.PortRuleList)
	if !ok {
		table.ResourceVersion = obj.(*v1.PortRule).ResourceVersion
		return table, row(obj)
	}
	table.ListMeta = list.ListMeta
	return table, meta.EachListItem(list, row)
}
