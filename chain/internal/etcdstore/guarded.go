package etcdstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// guarded is a store whose objects the server itself deletes, without a request that a reset could
// hold or refuse: when a CRD is deleted, apiextensions-apiserver deletes its custom
// resources one after the other.
type guarded struct {
	apistorage.Interface
	backend  *Backend
	resource schema.GroupResource
	allow    func(context.Context, schema.GroupResource) error
}

// Guard returns a [Resources.Wrap] that calls allow before the server changes or deletes an object
// other than by a request. An error refuses that. No reset comes in between.
func (b *Backend) Guard(
	allow func(context.Context, schema.GroupResource) error,
) func(apistorage.Interface, schema.GroupResource) apistorage.Interface {
	return func(s apistorage.Interface, resource schema.GroupResource) apistorage.Interface {
		return guarded{s, b, resource, allow}
	}
}

// begin returns an error if a change is not wanted any more. The caller must call end after it.
func (g guarded) begin(ctx context.Context) (end func(), err error) {
	if _, ok := genericapirequest.RequestInfoFrom(ctx); ok {
		return func() {}, nil
	}
	lock := &g.backend.beginning
	lock.RLock()
	return lock.RUnlock, g.allow(ctx, g.resource)
}

func (g guarded) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions,
	validate apistorage.ValidateObjectFunc, existing runtime.Object, opts apistorage.DeleteOptions,
) error {
	end, err := g.begin(ctx)
	defer end()
	if err != nil {
		return err
	}
	return g.Interface.Delete(ctx, key, out, preconditions, validate, existing, opts)
}

func (g guarded) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, update apistorage.UpdateFunc, existing runtime.Object,
) error {
	end, err := g.begin(ctx)
	defer end()
	if err != nil {
		return err
	}
	return g.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, existing)
}

// Stored returns the value of a key below the prefix, or nil if it does not exist.
func (b *Backend) Stored(ctx context.Context, key string) ([]byte, error) {
	found, err := b.client.KV.Get(ctx, b.prefix+"/"+key, clientv3.WithLimit(1))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	if len(found.Kvs) == 0 {
		return nil, nil
	}
	return found.Kvs[0].Value, nil
}
