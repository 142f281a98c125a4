package etcdstore

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
)

// Damage is a stored object that cannot be decoded. As in kube-apiserver, lists and watches of its
// resource fail.
type Damage struct {
	// Key is the object's key in etcd.
	Key string
	Err error
}

// reader decodes the objects below a prefix, and calls note if one cannot be decoded.
type reader struct {
	runtime.Codec
	value.Transformer
	prefix  string
	newFunc func() runtime.Object
	note    func(*reader)
}

// Decode implements runtime.Decoder.
func (r *reader) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := r.Codec.Decode(data, defaults, into)
	if err != nil {
		r.note(r)
	}
	return obj, gvk, err
}

// TransformFromStorage implements value.Transformer.
func (r *reader) TransformFromStorage(
	ctx context.Context, data []byte, dataCtx value.Context,
) ([]byte, bool, error) {
	out, stale, err := r.Transformer.TransformFromStorage(ctx, data, dataCtx)
	if err != nil {
		r.note(r)
	}
	return out, stale, err
}

var versioner = apistorage.APIObjectVersioner{}

// object returns a stored object with the resource version of a revision.
func (r *reader) object(
	ctx context.Context, kv *mvccpb.KeyValue, revision int64,
) (runtime.Object, error) {
	data, _, err := r.TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
	if err != nil {
		return nil, err
	}
	object, _, err := r.Decode(data, nil, r.newFunc())
	if err != nil {
		return nil, err
	}
	return object, versioner.UpdateObject(object, uint64(revision))
}

// note records a reader that failed to decode an object. The reader does not know which object it
// was.
func (b *Backend) note(r *reader) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(b.damaged, r) {
		return
	}
	if len(b.damaged) == 0 {
		close(b.undecodable)
	}
	b.damaged = append(b.damaged, r)
}

// Undecodable returns a channel that is closed when an object was found that cannot be decoded.
func (b *Backend) Undecodable() <-chan struct{} { return b.undecodable }

// damagePage is the number of objects that are read from etcd at once.
const damagePage = 500

// Damaged returns the objects that cannot be decoded, sorted by their keys. It looks only at
// resources in which such an object was found before.
func (b *Backend) Damaged(ctx context.Context) ([]Damage, error) {
	b.mu.Lock()
	readers := slices.Clone(b.damaged)
	b.mu.Unlock()
	var found []Damage
	for _, r := range readers {
		end := clientv3.WithRange(clientv3.GetPrefixRangeEnd(r.prefix))
		for key := r.prefix; ; {
			page, err := b.client.KV.Get(ctx, key, end, clientv3.WithLimit(damagePage))
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", r.prefix, err)
			}
			for _, kv := range page.Kvs {
				key = string(kv.Key)
				if _, err := r.object(ctx, kv, kv.ModRevision); err != nil {
					found = append(found, Damage{key, err})
				}
			}
			if !page.More {
				break
			}
			key += "\x00"
		}
	}
	slices.SortFunc(found, func(a, b Damage) int { return strings.Compare(a.Key, b.Key) })
	return found, nil
}

// below returns the prefix of the keys of a resource.
func below(prefix, resourcePrefix string) string {
	return path.Join("/", prefix, resourcePrefix) + "/"
}
