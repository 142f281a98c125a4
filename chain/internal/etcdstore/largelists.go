package etcdstore

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
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
	if cached := s.cached.Load(); cached != nil {
		if count, err := s.count(ctx, key); err != nil || count < largeList {
			return s.Interface.GetList(ctx, key, opts, list)
		}
		defer s.hurry(ctx)()
		return cached.GetList(ctx, key, opts, list)
	}
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	if meta.LenList(list) >= largeList {
		s.startCache(ctx)
	}
	return nil
}

// count returns the number of objects below a key.
func (s *cachedOnWatch) count(ctx context.Context, key string) (int64, error) {
	prefix := below(s.backend.prefix, key)
	if c := s.backend.counters.of(prefix); c != nil {
		if n, known := c.latest(); known {
			return n, nil
		}
	}
	found, err := s.backend.client.KV.Get(ctx, prefix, clientv3.WithPrefix(),
		clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	if found.Count >= manyKeys {
		s.backend.counters.start(prefix)
	}
	return found.Count, nil
}

// startCache starts the watch cache in the background. Of ctx, it takes only the logger: the
// request may be given up, but stop waits for the cache.
func (s *cachedOnWatch) startCache(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.cacher != nil {
		return
	}
	log := klog.FromContext(ctx)
	s.starting.Go(func() {
		if _, err := s.cache(klog.NewContext(context.Background(), log)); err != nil {
			log.V(2).Info("Large lists are read from etcd, because the watch cache "+
				"failed to start", "resource", s.config.GroupResource, "reason", err)
		}
	})
}
