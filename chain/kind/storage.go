package kind

import (
	"fmt"
	"strings"

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

// Resources is the storage of groups, by group version and path, such as "pods" or "pods/status".
type Resources map[schema.GroupVersion]map[string]rest.Storage

// NewResources returns the storage of all kinds of groups. The scheme must come from [NewScheme].
// Options decide where the objects of a resource are stored.
func NewResources(
	scheme *runtime.Scheme, options generic.RESTOptionsGetter, groups ...Group,
) (Resources, error) {
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

// add serves s as the resource or subresource path of all gvs.
func (b *builder) add(gvs []schema.GroupVersion, path string, s rest.Storage) error {
	if s == nil {
		return fmt.Errorf("%s: the declaration returned no storage", path)
	}
	for _, gv := range gvs {
		if b.resources[gv] == nil {
			b.resources[gv] = map[string]rest.Storage{}
		}
		if _, taken := b.resources[gv][path]; taken {
			return fmt.Errorf("%s: two kinds are served as %s", path, gv)
		}
		b.resources[gv][path] = s
	}
	return nil
}

// Storage is the main resource of a kind: a store with the names that discovery shows.
type Storage struct {
	*genericregistry.Store
	shortNames []string
	categories []string
}

// ShortNames implements rest.ShortNamesProvider.
func (s *Storage) ShortNames() []string { return s.shortNames }

// Categories implements rest.CategoriesProvider.
func (s *Storage) Categories() []string { return s.categories }

// servedVersions returns the group versions in which the kind is served, the hub version first.
func (k *Kind[T]) servedVersions(
	scheme *runtime.Scheme,
) ([]schema.GroupVersion, schema.GroupVersionKind, error) {
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
	if k.Enabled != nil && !k.Enabled() {
		return nil
	}
	gvs, gvk, err := k.servedVersions(b.scheme)
	if err != nil {
		return err
	}
	return b.addKind(stored{
		Kind: k.untyped(), gvs: gvs, gvk: gvk,
		new:        func() runtime.Object { return newObject[T]() },
		attributes: k.attributes,
	})
}

// stored is a kind of which storage is made.
type stored struct {
	*Kind[Object]
	// gvs are the group versions in which it is served. Gvk is that of the hub version.
	gvs []schema.GroupVersion
	gvk schema.GroupVersionKind
	// new returns a new object.
	new func() runtime.Object
	// attributes returns the labels and fields of an object that selectors match.
	attributes storage.AttrFunc
}

// addKind serves the resource and the subresources of a kind.
func (b *builder) addKind(k stored) error {
	var versions []string
	for _, gv := range k.gvs {
		versions = append(versions, gv.String())
	}
	store, err := k.newStore(b, versions)
	if err != nil {
		return fmt.Errorf("%s: %w", k.Plural, err)
	}

	main := rest.Storage(&Storage{Store: store, shortNames: k.ShortNames, categories: k.Categories})
	if k.Wrap != nil {
		main = k.Wrap(main.(*Storage))
	}
	if err := b.add(k.gvs, k.Plural, main); err != nil {
		return err
	}
	if k.Status != nil {
		if err := b.add(k.gvs, k.Plural+"/status", newStatus(k.Kind, store, versions)); err != nil {
			return err
		}
	}
	for _, sub := range k.Subresources {
		made := newSubresource(store, sub, versions)
		if err := b.add(k.gvs, k.Plural+"/"+sub.Name, made); err != nil {
			return err
		}
	}
	if k.Scale != nil {
		return b.add(k.gvs, k.Plural+"/scale", newScaleREST(store, k.Scale, versions))
	}
	return nil
}

func (k stored) newStore(b *builder, versions []string) (*genericregistry.Store, error) {
	resource := schema.GroupResource{Group: k.gvk.Group, Resource: k.Plural}
	singular := k.Singular
	if singular == "" {
		singular = strings.ToLower(k.gvk.Kind)
	}
	s := strategy{ObjectTyper: b.scheme, NameGenerator: names.SimpleNameGenerator, k: k.Kind}
	listKind := k.gvk.GroupVersion().WithKind(k.gvk.Kind + "List")
	if !b.scheme.Recognizes(listKind) {
		return nil, fmt.Errorf("no version's AddToScheme registers %s", listKind)
	}
	store := &genericregistry.Store{
		NewFunc: k.new,
		NewListFunc: func() runtime.Object {
			list, _ := b.scheme.New(listKind) // recognized above
			return list
		},
		DefaultQualifiedResource:  resource,
		SingularQualifiedResource: schema.GroupResource{Group: k.gvk.Group, Resource: singular},
		CreateStrategy:            s,
		UpdateStrategy:            s,
		DeleteStrategy:            s,
		ResetFieldsStrategy:       resetFieldsStrategy(resetFields(k.mainResetFields(), versions)),
		TableConvertor:            newTableConvertor(k.Kind, resource),
		ReturnDeletedObject:       k.Quirks.ReturnDeleted,
	}
	if k.GracePeriod != nil {
		store.DeleteStrategy = gracefulStrategy{s}
	}
	options := &generic.StoreOptions{
		RESTOptions: storagePath{b.options, k.Quirks.StoragePath},
		AttrFunc:    k.attributes,
	}
	store.PredicateFunc = func(
		label labels.Selector, field fields.Selector,
	) storage.SelectionPredicate {
		p := storage.SelectionPredicate{Label: label, Field: field, GetAttrs: k.attributes}
		if k.IndexedField != "" {
			p.IndexFields = []string{k.IndexedField}
		}
		return p
	}
	if k.IndexedField != "" {
		options.TriggerFunc = storage.IndexerFuncs{k.IndexedField: func(obj runtime.Object) string {
			return k.Fields[k.IndexedField](obj.(Object))
		}}
	}
	if k.Refuse != nil {
		store.BeginCreate, store.BeginUpdate = s.refuseCreate, s.refuseUpdate
	}
	if k.Adjust != nil {
		k.Adjust(store)
	}
	return store, store.CompleteWithOptions(options)
}

// mainResetFields returns the fields that clients cannot set through the main resource.
func (k *Kind[T]) mainResetFields() []string {
	if k.ResetFields == nil && k.resetsStatus() {
		return []string{"status"}
	}
	return k.ResetFields
}

// resetsStatus reports whether the main resource ignores the status that clients send.
func (k *Kind[T]) resetsStatus() bool {
	return k.Status != nil && (k.Quirks.StatusWithSpec == nil || !k.Quirks.StatusWithSpec())
}

// attributes returns the labels and fields that selectors match.
func (k *Kind[T]) attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	t, ok := obj.(T)
	if !ok {
		return nil, nil, fmt.Errorf("the object is a %T, not a %T", obj, newObject[T]())
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

// storagePath replaces the path of a resource below the storage prefix, unless path is empty.
type storagePath struct {
	generic.RESTOptionsGetter
	path string
}

func (p storagePath) GetRESTOptions(
	resource schema.GroupResource, example runtime.Object,
) (generic.RESTOptions, error) {
	options, err := p.RESTOptionsGetter.GetRESTOptions(resource, example)
	if p.path != "" {
		options.ResourcePrefix = p.path
	}
	return options, err
}

type resetFieldsStrategy map[fieldpath.APIVersion]*fieldpath.Set

func (r resetFieldsStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set { return r }
