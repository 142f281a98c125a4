package etcdstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// Revisions returns the revisions at which the objects of some keys were last changed, 0 for an
// object that does not exist. The keys are relative to the prefix of the backend. This costs far
// less than to read the objects through the API.
func (b *Backend) Revisions(ctx context.Context, keys ...string) ([]int64, error) {
	revisions := make([]int64, len(keys))
	for i, key := range keys {
		key = b.prefix + "/" + key
		found, err := b.client.KV.Get(ctx, key, clientv3.WithKeysOnly())
		if err != nil {
			return nil, fmt.Errorf("get the revision of %s: %w", key, err)
		}
		if len(found.Kvs) > 0 {
			revisions[i] = found.Kvs[0].ModRevision
		}
	}
	return revisions, nil
}

// State returns the number of objects below a path and the revision of the newest change to one of
// them. As long as both stay the same, so do the objects: a deletion changes the number, and every
// other change has a newer revision. This costs far less than to list the objects through the API.
func (b *Backend) State(ctx context.Context, path string) (count, newest int64, err error) {
	prefix := b.feed.prefix + strings.Trim(path, "/") + "/"
	found, err := b.client.KV.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithLimit(1), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
	if err != nil {
		return 0, 0, fmt.Errorf("get the state of the keys below %s: %w", prefix, err)
	}
	if len(found.Kvs) > 0 {
		newest = found.Kvs[0].ModRevision
	}
	return found.Count, newest, nil
}

// Appeared calls appeared for each resource as soon as there is an object of it, one after the
// other. It returns when all have appeared or when ctx ends. It shares the etcd watch of the
// informers, whereas a watch through the API needs a watch cache. Controllers of objects that most
// control planes never have can wait here for the first one. The objects with the ignored keys,
// which are relative to the prefix of the backend, do not count, because every control plane has
// them.
func (b *Backend) Appeared(
	ctx context.Context, resources []schema.GroupResource, ignored []string,
	appeared func(schema.GroupResource),
) {
	a := &appearance{
		wake:    make(chan struct{}, 1),
		missing: map[schema.GroupResource]string{},
		ignored: map[string]bool{},
	}
	for _, key := range ignored {
		a.ignored[b.feed.prefix+key] = true
	}
	for _, resource := range resources {
		a.missing[resource] = b.feed.prefix + b.directory(resource)
	}
	b.feed.await(ctx, a)
	defer b.feed.forget(a)
	for len(a.missing) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		for resource, directory := range maps.Clone(a.missing) {
			found, err := b.any(ctx, directory, a.ignored)
			if err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Looking for the first object failed, trying again")
				pause(ctx)
				a.look()
			}
			if found {
				a.found(resource)
				appeared(resource)
			}
		}
	}
}

// any reports whether there is an object in a directory whose key is not ignored.
func (b *Backend) any(
	ctx context.Context, directory string, ignored map[string]bool,
) (bool, error) {
	found, err := b.client.KV.Get(ctx, directory, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithLimit(int64(len(ignored))+1))
	if err != nil {
		return false, fmt.Errorf("look for keys below %s: %w", directory, err)
	}
	for _, kv := range found.Kvs {
		if !ignored[string(kv.Key)] {
			return true, nil
		}
	}
	return false, nil
}

// appearance is one call of [Backend.Appeared].
type appearance struct {
	wake    chan struct{}   // a value says that an object may have appeared
	ignored map[string]bool // keys; not changed

	mu      sync.Mutex                      // held to change missing, and to read it elsewhere
	missing map[schema.GroupResource]string // their directories
}

// see is called for each key that is written.
func (a *appearance) see(key string) {
	if a.ignored[key] {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, directory := range a.missing {
		if strings.HasPrefix(key, directory) {
			a.look()
		}
	}
}

func (a *appearance) look() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *appearance) found(resource schema.GroupResource) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.missing, resource)
}

func (f *feed) await(ctx context.Context, a *appearance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, a)
	if !f.start(ctx) {
		a.look()
	}
}

func (f *feed) forget(a *appearance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = slices.DeleteFunc(f.waiting, func(other *appearance) bool { return other == a })
}
