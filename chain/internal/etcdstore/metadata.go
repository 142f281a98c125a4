package etcdstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kinproc/kinproc/chain/internal/stored"
)

// Key returns the key of an object, relative to the prefix of the backend. The namespace of
// cluster-scoped objects is empty.
func (b *Backend) Key(resource schema.GroupResource, namespace, name string) string {
	key := b.directory(resource)
	if namespace != "" {
		key += namespace + "/"
	}
	return key + name
}

// directory returns what the keys of a resource begin with. Built-in resources always have a store.
// A custom resource may have none yet, but its directory is known.
func (b *Backend) directory(resource schema.GroupResource) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.caches {
		if s.config.GroupResource == resource {
			return strings.TrimPrefix(s.reader.prefix, b.feed.prefix)
		}
	}
	return resource.Group + "/" + resource.Resource + "/"
}

// Metadata returns the metadata of the object with a key, as [MetadataHandler] gets it, and the
// current revision. It returns nil if there is no such object.
func (b *Backend) Metadata(
	ctx context.Context, key string,
) (*metav1.PartialObjectMetadata, int64, error) {
	found, err := b.client.KV.Get(ctx, b.feed.prefix+key)
	if err != nil {
		return nil, 0, fmt.Errorf("get %s: %w", key, err)
	}
	if len(found.Kvs) == 0 {
		return nil, found.Header.Revision, nil
	}
	var object metav1.PartialObjectMetadata
	if _, err := b.readMetadata(ctx, found.Kvs[0], &object); err != nil {
		return nil, 0, fmt.Errorf("decode the metadata of %s: %w", key, err)
	}
	return &object, found.Header.Revision, nil
}

// Namesakes returns the keys of all objects of a resource that have a name, in any namespace.
func (b *Backend) Namesakes(
	ctx context.Context, resource schema.GroupResource, name string,
) ([]string, error) {
	prefix := b.feed.prefix + b.directory(resource)
	found, err := b.client.KV.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("list the keys below %s: %w", prefix, err)
	}
	var keys []string
	suffix := []byte("/" + name)
	for _, kv := range found.Kvs {
		if bytes.HasSuffix(kv.Key, suffix) {
			keys = append(keys, strings.TrimPrefix(string(kv.Key), b.feed.prefix))
		}
	}
	return keys, nil
}

var errNoObject = errors.New("neither a protobuf nor a JSON object")

// readMetadata decodes the metadata of a stored object, and returns the object's value, decrypted.
func (b *Backend) readMetadata(
	ctx context.Context, kv *mvccpb.KeyValue, into *metav1.PartialObjectMetadata,
) ([]byte, error) {
	data := kv.Value
	if !stored.IsProtobuf(data) && !bytes.HasPrefix(data, []byte("{")) {
		r := b.readerOf(string(kv.Key))
		if r == nil {
			return nil, errNoObject
		}
		var err error
		data, _, err = r.TransformFromStorage(ctx, data, value.DefaultContext(kv.Key))
		if err != nil {
			return nil, err
		}
	}
	err := stored.Metadata(data, into)
	into.ResourceVersion = strconv.FormatInt(kv.ModRevision, 10)
	return data, err
}

// readerOf returns the reader of the objects to which a key belongs, or nil if there is none.
func (b *Backend) readerOf(key string) *reader {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.caches {
		if strings.HasPrefix(key, s.reader.prefix) {
			return s.reader
		}
	}
	return nil
}
