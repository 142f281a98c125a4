package kind

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Resources is the storage that groups need, by group version and resource path ("pods", "pods/status").
type Resources map[schema.GroupVersion]map[string]rest.Storage

// NewResources makes the storage of all kinds of groups. The scheme is that of [NewScheme]; options give the etcd storage of a resource.
func NewResources(scheme *runtime.Scheme, options generic.RESTOptionsGetter, groups ...Group) (Resources, error) {
	b := &builder{scheme: scheme, options: options, resources: Resources{}}
	for _, g := range groups {
		for _, k := range g.Kinds {
			if err := k.resources(b); err != nil {
				return nil, fmt.Errorf("storage of group %q: %w", g.Name, err)
			}
		}
	}
	return b.resources, nil
}

type builder struct {
	scheme    *runtime.Scheme
	options   generic.RESTOptionsGetter
	resources Resources
}

func (b *builder) add(gvs []schema.GroupVersion, path string, s rest.Storage) {
	for _, gv := range gvs {
		if b.resources[gv] == nil {
			b.resources[gv] = map[string]rest.Storage{}
		}
		b.resources[gv][path] = s
	}
}

// Storage is the main resource of a kind: the registry's store with the names that discovery shows.
type Storage struct {
	*genericregistry.Store
	shortNames []string
	categories []string
}

// ShortNames implements rest.ShortNamesProvider.
func (s *Storage) ShortNames() []string { return s.shortNames }

// Categories implements rest.CategoriesProvider.
func (s *Storage) Categories() []string { return s.categories }

// servedVersions are the group versions in which the kind is served, the hub version first.
func (k *Kind[T]) servedVersions(scheme *runtime.Scheme) ([]schema.GroupVersion, schema.GroupVersionKind, error) {
	gvk, err := k.gvk(scheme)
	if err != nil {
		return nil, gvk, err
	}
	gvs := []schema.GroupVersion{gvk.GroupVersion()}
	for _, v := range k.Versions {
		served, err := externalKind(scheme, v.example)
		if err != nil {
			return nil, gvk, err
		}
		gvs = append(gvs, served.GroupVersion())
	}
	return gvs, gvk, nil
}

func (k *Kind[T]) resources(b *builder) error {
	gvs, gvk, err := k.servedVersions(b.scheme)
	if err != nil {
		return err
	}
	var versions []string
	for _, gv := range gvs {
		versions = append(versions, gv.String())
	}
	store, err := k.newStore(b, gvk, versions)
	if err != nil {
		return fmt.Errorf("%s: %w", k.Plural, err)
	}

	main := &Storage{Store: store, shortNames: k.ShortNames, categories: k.Categories}
	if k.Wrap != nil {
		b.add(gvs, k.Plural, k.Wrap(main))
	} else {
		b.add(gvs, k.Plural, main)
	}

	subresources := k.Subresources
	if k.Status != nil {
		subresources = append([]Subresource[T]{k.Status.asSubresource()}, subresources...)
	}
	for _, sub := range subresources {
		b.add(gvs, k.Plural+"/"+sub.Name, k.newSubresource(store, sub, versions))
	}
	if k.Scale != nil {
		b.add(gvs, k.Plural+"/scale", newScaleREST(store, k.Scale, versions))
	}
	return nil
}

func (k *Kind[T]) newStore(b *builder, gvk schema.GroupVersionKind, versions []string) (*genericregistry.Store, error) {
	resource := schema.GroupResource{Group: gvk.Group, Resource: k.Plural}
	singular := k.Singular
	if singular == "" {
		singular = strings.ToLower(gvk.Kind)
	}
	reset := k.ResetFields
	if reset == nil && k.Status != nil {
		reset = []string{"status"}
	}
	s := strategy[T]{ObjectTyper: b.scheme, NameGenerator: names.SimpleNameGenerator, k: k}
	listKind := gvk.GroupVersion().WithKind(gvk.Kind + "List")
	if !b.scheme.Recognizes(listKind) {
		return nil, fmt.Errorf("no version's AddToScheme registers %s", listKind)
	}
	store := &genericregistry.Store{
		NewFunc: func() runtime.Object { return newObject[T]() },
		NewListFunc: func() runtime.Object {
			list, _ := b.scheme.New(listKind) // recognized above
			return list
		},
		DefaultQualifiedResource:  resource,
		SingularQualifiedResource: schema.GroupResource{Group: gvk.Group, Resource: singular},
		CreateStrategy:            s,
		UpdateStrategy:            s,
		DeleteStrategy:            s,
		ResetFieldsStrategy:       resetFieldsStrategy(resetFields(reset, versions)),
		TableConvertor:            k.tableConvertor(resource),
		ReturnDeletedObject:       k.ReturnDeleted,
	}
	if k.GracePeriod != nil {
		store.DeleteStrategy = gracefulStrategy[T]{s}
	}
	options := &generic.StoreOptions{RESTOptions: storagePath{b.options, k.StoragePath}, AttrFunc: k.attributes}
	store.PredicateFunc = func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
		p := storage.SelectionPredicate{Label: label, Field: field, GetAttrs: k.attributes}
		if k.IndexedField != "" {
			p.IndexFields = []string{k.IndexedField}
		}
		return p
	}
	if k.IndexedField != "" {
		options.TriggerFunc = storage.IndexerFuncs{k.IndexedField: func(obj runtime.Object) string {
			return k.Fields[k.IndexedField](obj.(T))
		}}
	}
	if k.Refuse != nil {
		store.BeginCreate, store.BeginUpdate = k.refuseCreate, k.refuseUpdate
	}
	if k.Adjust != nil {
		k.Adjust(store)
	}
	return store, store.CompleteWithOptions(options)
}

// attributes are what label and field selectors look at.
func (k *Kind[T]) attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	t, ok := obj.(T)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is no %T", obj, newObject[T]())
	}
	set := make(fields.Set, len(k.Fields)+2)
	set["metadata.name"] = t.GetName()
	if !k.ClusterScoped {
		set["metadata.namespace"] = t.GetNamespace()
	}
	for name, value := range k.Fields {
		set[name] = value(t)
	}
	return t.GetLabels(), set, nil
}

// storagePath lets a kind say where below the prefix its objects are kept.
type storagePath struct {
	generic.RESTOptionsGetter
	path string
}

func (p storagePath) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := p.RESTOptionsGetter.GetRESTOptions(resource, example)
	if p.path != "" {
		options.ResourcePrefix = p.path
	}
	return options, err
}

type resetFieldsStrategy map[fieldpath.APIVersion]*fieldpath.Set

func (r resetFieldsStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set { return r }

func (k *Kind[T]) newSubresource(store *genericregistry.Store, sub Subresource[T], versions []string) rest.Storage {
	if sub.New != nil {
		return sub.New(store)
	}
	s := store.UpdateStrategy.(strategy[T])
	view := *store
	// What a request reserves (see Kind.Adjust) is decided by the main resource alone.
	view.BeginCreate, view.BeginUpdate = nil, nil
	if k.Refuse != nil {
		view.BeginUpdate = k.refuseUpdate
	}
	view.UpdateStrategy = subresourceStrategy[T]{
		strategy: s, prepare: sub.Prepare, validate: sub.Validate, warnings: sub.Warnings,
		nameOnUpdate: sub.nameOnUpdate, anyFinalizers: sub.anyFinalizers,
	}
	view.ResetFieldsStrategy = resetFieldsStrategy(resetFields(sub.ResetFields, versions))
	switch {
	case sub.UpdateOnly:
		return &updateREST{store: &view}
	case sub.tables:
		return &tableREST{viewREST{updateREST{store: &view}}}
	}
	return &viewREST{updateREST{store: &view}}
}

// updateREST is a subresource that is a view of the whole object and can only be replaced.
type updateREST struct{ store *genericregistry.Store }

func (r *updateREST) New() runtime.Object { return r.store.New() }

// Destroy leaves the store to the main resource.
func (r *updateREST) Destroy() {}

func (r *updateREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	// A subresource never creates its object.
	return r.store.Update(ctx, name, info, createValidation, updateValidation, false, options)
}

func (r *updateREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

// viewREST adds reading, and with it patching.
type viewREST struct{ updateREST }

func (r *viewREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// tableREST adds tables.
type tableREST struct{ viewREST }

func (r *tableREST) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, obj, options)
}

func (v *Virtual) register(scheme *runtime.Scheme) error {
	gvk, err := externalKind(scheme, v.New().New())
	if err != nil {
		return err
	}
	return registerHub(scheme, gvk, gvk.Group)
}

func (v *Virtual) resources(b *builder) error {
	s := v.New()
	gvk, err := externalKind(b.scheme, s.New())
	if err != nil {
		return err
	}
	b.add([]schema.GroupVersion{gvk.GroupVersion()}, v.Plural, s)
	return nil
}
