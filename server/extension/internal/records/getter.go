package records

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// Persistence keeps records. See extension.Persistence, which has the same methods.
type Persistence interface {
	Load(ctx context.Context, prefix string, each func(key string, value []byte) error) error
	Put(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error
}

// Getter makes the stores of resources.
type Getter struct {
	Persistence Persistence
	// Codec returns the codec for objects of example's kind.
	Codec func(example runtime.Object) (runtime.Codec, error)
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (g Getter) GetRESTOptions(
	resource schema.GroupResource, example runtime.Object,
) (generic.RESTOptions, error) {
	codec, err := g.Codec(example)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	config := storagebackend.Config{Codec: codec}
	return generic.RESTOptions{
		StorageConfig:           config.ForResource(resource),
		ResourcePrefix:          "/" + resource.Group + "/" + resource.Resource,
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: 1,
		Decorator: func(
			config *storagebackend.ConfigForResource, prefix string,
			_ func(runtime.Object) (string, error), newObject, _ func() runtime.Object,
			_ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			s, err := Open(context.Background(), g.Persistence, config.Codec, prefix, newObject)
			return s, func() {}, err
		},
	}, nil
}
