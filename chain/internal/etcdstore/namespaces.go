package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// NamespaceSince returns the revision at which a namespace was created. It is the namespace of that
// name at another revision, or now if that is 0. Older objects belong to an earlier namespace
// of that name. If there is no such namespace, all objects are older.
func (b *Backend) NamespaceSince(ctx context.Context, name string, at int64) (int64, error) {
	key := b.feed.prefix + b.Key(namespaces, "", name)
	found, err := b.client.KV.Get(ctx, key, clientv3.WithRev(at))
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", key, err)
	}
	if len(found.Kvs) == 0 {
		return math.MaxInt64, nil
	}
	kv := found.Kvs[0]
	uid, err := b.uidOf(ctx, kv)
	if err != nil {
		return 0, err
	}
	// A reset may put another namespace in the place of this name, without a deletion.
	b.mu.Lock()
	resets := slices.Clone(b.resets)
	b.mu.Unlock()
	for _, m := range slices.Backward(resets) {
		revision := int64(m.revision)
		if revision <= kv.CreateRevision {
			break
		}
		if revision > kv.ModRevision || !m.touches(b.feed.prefix+b.Key(namespaces, "", "")) {
			continue
		}
		found, err := b.client.KV.Get(ctx, key, clientv3.WithRev(revision-1))
		switch {
		case errors.Is(err, rpctypes.ErrCompacted):
			return kv.CreateRevision, nil // nothing is left of what was before the reset
		case err != nil:
			return 0, fmt.Errorf("read %s at revision %d: %w", key, revision-1, err)
		case len(found.Kvs) == 0:
			continue
		}
		before, err := b.uidOf(ctx, found.Kvs[0])
		if err != nil {
			return 0, err
		}
		if before != uid {
			return revision, nil
		}
	}
	return kv.CreateRevision, nil
}

// inSameNamespace reports whether a change that is followed is still in the namespace whose changes
// may be shown. The next one of that name is somebody else's.
func (b *Backend) inSameNamespace(ctx context.Context, c *change) (bool, error) {
	name, at := c.namespace, c.Kv.ModRevision
	switch {
	case c.since == 0:
		return true, nil
	case c.resource == namespaces && c.Type == mvccpb.DELETE:
		name, at = c.name, at-1
	case c.resource == namespaces:
		name = c.name
	}
	since, err := b.NamespaceSince(ctx, name, at)
	return since == c.since, err
}

func (b *Backend) uidOf(ctx context.Context, kv *mvccpb.KeyValue) (types.UID, error) {
	var object metav1.PartialObjectMetadata
	if _, err := b.readMetadata(ctx, kv, &object); err != nil {
		return "", fmt.Errorf("decode the metadata of %s: %w", kv.Key, err)
	}
	return object.UID, nil
}
