package etcdstore

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
)

// largeList is the number of objects from which on a list that is repeated is read from a watch
// cache. To decode this many objects takes several times as long as to ask etcd whether the cache
// is up to date.
const largeList = 500

// knownLargeLists limits how many large lists a store remembers.
const knownLargeLists = 64

// largeLists remembers the keys of lists that were large.
type largeLists struct {
	mu   sync.Mutex
	keys map[string]struct{}
}

func (l *largeLists) has(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.keys[key]
	return ok
}

// note remembers whether the list of a key is large.
func (l *largeLists) note(key string, large bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !large:
		delete(l.keys, key)
	case len(l.keys) < knownLargeLists:
		if l.keys == nil {
			l.keys = map[string]struct{}{}
		}
		l.keys[key] = struct{}{}
	}
}

// listLatest lists the latest objects. A large list is read from etcd only the first time. It
// starts the watch cache, which serves the next lists once it has seen all changes that etcd has.
func (s *cachedOnWatch) listLatest(
	ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object,
) error {
	cached := s.cached.Load()
	if cached != nil && s.large.has(key) {
		defer s.hurry(ctx)()
		if err := cached.GetList(ctx, key, opts, list); err != nil {
			return err
		}
	} else if err := s.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	if !opts.Predicate.Empty() {
		return nil // more objects were read than are in the list
	}
	large := meta.LenList(list) >= largeList
	s.large.note(key, large)
	if large && cached == nil {
		s.startCache(ctx)
	}
	return nil
}

// startCache starts the watch cache in the background.
func (s *cachedOnWatch) startCache(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.cacher != nil {
		return
	}
	s.starting.Go(func() {
		if _, err := s.cache(context.WithoutCancel(ctx)); err != nil {
			klog.FromContext(ctx).V(2).Info("Large lists are read from etcd, because the watch cache "+
				"failed to start", "resource", s.config.GroupResource, "reason", err)
		}
	})
}
