package kind

import (
	"context"
	"fmt"
	"path"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	storagevalue "k8s.io/apiserver/pkg/storage/value"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Preparer prepares objects as create requests would leave them in the storage. A server can write
// its first objects with it before it serves anything, and without the OpenAPI definitions from
// which requests compute managed fields.
type Preparer struct {
	scheme *runtime.Scheme
	groups []Group
}

// NewPreparer returns a Preparer for objects of the kinds of groups. The scheme must know their
// types.
func NewPreparer(scheme *runtime.Scheme, groups ...Group) *Preparer {
	return &Preparer{scheme, groups}
}

// Prepare turns obj into what a create request by the given field manager would make of it.
// Defaults, managed fields, system metadata, preparation and validation are the same as for a
// request. Admission and the effects of [Kind.Adjust] and [Kind.Wrap] are left out.
//
// The managed fields are computed without the OpenAPI definitions, which suffices for kinds whose
// lists are atomic. A list that is merged by key is an error.
func (p *Preparer) Prepare(ctx context.Context, obj Object, manager string) error {
	return p.PrepareOwned(ctx, obj, manager, "")
}

// PrepareOwned is like [Preparer.Prepare] for an object of which the caller knows the fields that
// the manager owns, in the format FieldsV1, because it has lists that are merged by key.
func (p *Preparer) PrepareOwned(ctx context.Context, obj Object, manager, fields string) error {
	c, err := p.creation(obj)
	if err == nil {
		err = p.prepare(ctx, obj, manager, fields, c)
	}
	if err != nil {
		return fmt.Errorf("prepare %w", err)
	}
	return nil
}

// Renew turns a copy of a prepared object into a new one, with a UID of its own and created now. A
// process with several servers thus prepares the objects that all of them have only once.
func Renew(obj Object) {
	rest.FillObjectMetaSystemFields(obj)
	created := obj.GetCreationTimestamp()
	managed := slices.Clone(obj.GetManagedFields())
	for i := range managed {
		managed[i].Time = &created
	}
	obj.SetManagedFields(managed)
}

// Encode returns a prepared object encoded, and encrypted if the storage is, with its key in the
// storage. Options provide the codec, the prefix and the path of each resource.
func (p *Preparer) Encode(
	obj Object, options generic.RESTOptionsGetter,
) (key string, value []byte, err error) {
	c, err := p.creation(obj)
	if err != nil {
		return "", nil, fmt.Errorf("encode %w", err)
	}
	gvk, err := externalKind(p.scheme, obj)
	if err != nil {
		return "", nil, fmt.Errorf("encode %s %q: %w", c.resource, obj.GetName(), err)
	}
	stored, err := storagePath{options, c.path}.GetRESTOptions(schema.GroupResource{
		Group:    gvk.Group,
		Resource: c.resource,
	}, obj)
	if err != nil {
		return "", nil, fmt.Errorf("encode %s %q: %w", c.resource, obj.GetName(), err)
	}
	if value, err = runtime.Encode(stored.StorageConfig.Codec, obj); err != nil {
		return "", nil, fmt.Errorf("encode %s %q: %w", c.resource, obj.GetName(), err)
	}
	key = path.Join("/", stored.StorageConfig.Prefix, stored.ResourcePrefix,
		obj.GetNamespace(), obj.GetName())
	if t := stored.StorageConfig.Transformer; t != nil {
		value, err = t.TransformToStorage(context.Background(), value, storagevalue.DefaultContext(key))
		if err != nil {
			return "", nil, fmt.Errorf("encrypt %s %q: %w", c.resource, obj.GetName(), err)
		}
	}
	return key, value, nil
}

// creation returns how objects of obj's kind are created.
func (p *Preparer) creation(obj Object) (*creation, error) {
	for _, g := range p.groups {
		for _, k := range g.Kinds {
			if c := k.creation(p.scheme, obj); c != nil {
				return c, nil
			}
		}
	}
	return nil, fmt.Errorf("%q: no kind is declared for %T", obj.GetName(), obj)
}

// creation holds what is needed to create objects of a kind.
type creation struct {
	// strategy returns the strategy of create requests.
	strategy func() rest.RESTCreateStrategy
	// resource is the plural name. If path is not empty, it replaces resource in keys.
	resource, path string
	// resetFields are the fields that clients cannot set.
	resetFields []string
	// refuse checks the object as it is.
	refuse func(ctx context.Context, obj Object) error
}

func (k *Kind[T]) creation(scheme *runtime.Scheme, obj Object) *creation {
	if _, ok := obj.(T); !ok {
		return nil
	}
	return &creation{
		strategy: func() rest.RESTCreateStrategy {
			return strategy{
				ObjectTyper:   scheme,
				NameGenerator: names.SimpleNameGenerator,
				k:             k.untyped(),
			}
		},
		resource:    k.Plural,
		path:        k.Quirks.StoragePath,
		resetFields: k.mainResetFields(),
		refuse: func(ctx context.Context, obj Object) error {
			if k.Refuse == nil {
				return nil
			}
			return k.Refuse(ctx, obj.(T))
		},
	}
}

// creation returns nil, because a virtual resource has no objects.
func (v *Virtual) creation(*runtime.Scheme, Object) *creation { return nil }

func (p *Preparer) prepare(
	ctx context.Context, obj Object, manager, fields string, c *creation,
) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s %q: %w", c.resource, obj.GetName(), err)
		}
	}()
	gvk, err := externalKind(p.scheme, obj)
	if err != nil {
		return err
	}
	ctx = request.WithNamespace(ctx, obj.GetNamespace())
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, Verb: "create",
		APIGroup: gvk.Group, APIVersion: gvk.Version, Resource: c.resource, Namespace: obj.GetNamespace(),
	})

	// The order is that of a request: the client owns what it sent and the defaults, not what the
	// strategy adds.
	p.scheme.Default(obj)
	rest.FillObjectMetaSystemFields(obj)
	version := gvk.GroupVersion().String()
	if fields == "" {
		fields, err = ownedFieldsV1(obj,
			resetFields(c.resetFields, []string{version})[fieldpath.APIVersion(version)])
		if err != nil {
			return err
		}
	}
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{newManagedFields(obj, manager, version, fields)})
	if err := c.refuse(ctx, obj); err != nil {
		return err
	}
	return rest.BeforeCreate(c.strategy(), ctx, obj)
}
