package etcdstore

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
)

// largeList is the number of objects from which on a list is read from a watch cache. To decode
// this many objects takes several times as long as to ask etcd whether the cache is up to date.
const largeList = 500

// listLatest lists the latest objects. Of a kind that nobody watches, a large list starts the watch
// cache. The cache serves large lists once it has seen all changes that etcd has. Small lists are
// read from etcd, for which the cache would first have to wait.
func (s *cachedOnWatch) listLatest(
	ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object,
) error {
	if count, err := s.count(ctx, key); err != nil || count < largeList {
		return s.Interface.GetList(ctx, key, opts, list)
	}
	cached, err := s.cacheUnlessDamaged(ctx)
	if err != nil {
		return s.Interface.GetList(ctx, key, opts, list)
	}
	defer s.hurry(ctx)()
	return cached.GetList(ctx, key, opts, list)
}

// count returns the number of objects below a key.
func (s *cachedOnWatch) count(ctx context.Context, key string) (int64, error) {
	found, err := s.backend.client.KV.Get(ctx, below(s.backend.prefix, key), clientv3.WithPrefix(),
		clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return found.Count, nil
}

// cacheUnlessDamaged is like cache, but returns an error as soon as an object was found that cannot
// be decoded. A watch cache waits until it can read all objects.
func (s *cachedOnWatch) cacheUnlessDamaged(ctx context.Context) (*cacher.CacheDelegator, error) {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() {
		select {
		case <-s.backend.undecodable:
			cancel()
		case <-ctx.Done():
		}
	})
	return s.cache(ctx)
}
