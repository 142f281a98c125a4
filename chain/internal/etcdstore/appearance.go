package etcdstore

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
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
	prefix := b.prefix + "/" + strings.Trim(path, "/") + "/"
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

// Appeared waits until there is an object below path. It returns an error if ctx ends first. It
// needs only an etcd watch, whereas a watch through the API needs a watch cache. Controllers of
// objects that most control planes never have can wait here for the first one.
func (b *Backend) Appeared(ctx context.Context, path string) error {
	ctx, cancel := context.WithCancel(ctx) // so that the etcd watch ends on return
	defer cancel()
	prefix := b.prefix + "/" + strings.Trim(path, "/") + "/"
	for {
		found, err := b.client.KV.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return fmt.Errorf("count the keys below %s: %w", prefix, err)
		}
		if found.Count > 0 {
			return nil
		}
		changes := b.client.Watcher.Watch(ctx, prefix, clientv3.WithPrefix(),
			clientv3.WithRev(found.Header.Revision+1), clientv3.WithFilterDelete(), clientv3.WithKeysOnly())
		select {
		case change, ok := <-changes:
			if ok && change.Err() == nil {
				return nil
			}
		case <-ctx.Done(): // this closes changes too, unless etcd is in trouble
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// The watch ended because its revision was compacted.
	}
}
