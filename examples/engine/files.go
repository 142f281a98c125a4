package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// files stores objects in JSON files below a directory. It replaces the etcd that stores kinproc's
// built-in kinds.
type files struct {
	dir   string
	codec runtime.Codec

	mu      sync.Mutex
	objects map[string]record // by key; the content of the files
	history []change          // for watches
	version uint64            // resource version of the last change
	first   uint64            // history has all changes since this version
	changed chan struct{}     // closed on the next change
}

// record is an encoded object as stored in a file, with its resource version.
type record struct {
	data    []byte
	version uint64
}

// change is a change of the object with the given key. before is nil if the object was created, and
// now is nil if it was deleted.
type change struct {
	key         string
	before, now []byte
	version     uint64
}

// openFiles reads the objects below dir.
func openFiles(dir string, codec runtime.Codec) (*files, error) {
	f := &files{dir: dir, codec: codec, objects: map[string]record{}, changed: make(chan struct{})}
	// Resource versions must increase across restarts, and there are fewer than a million writes
	// per second.
	f.version = uint64(time.Now().UnixMicro())
	f.first = f.version
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		key, err := filepath.Rel(dir, strings.TrimSuffix(path, ".json"))
		f.objects["/"+filepath.ToSlash(key)] = record{data, f.version}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	return f, nil
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (f *files) GetRESTOptions(
	resource schema.GroupResource, _ runtime.Object,
) (generic.RESTOptions, error) {
	config := storagebackend.Config{Codec: f.codec}
	return generic.RESTOptions{
		StorageConfig:  config.ForResource(resource),
		ResourcePrefix: "/" + resource.Group + "/" + resource.Resource,
		Decorator: func(
			_ *storagebackend.ConfigForResource, _ string, _ func(runtime.Object) (string, error),
			newObject, _ func() runtime.Object,
			_ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			return &resourceFiles{files: f, newObject: newObject}, func() {}, nil
		},
	}, nil
}

// write stores data under key, or deletes the key if data is nil. The caller holds the mutex.
func (f *files) write(key string, data []byte) error {
	path := filepath.Join(f.dir, filepath.FromSlash(key)+".json")
	if data == nil {
		if err := os.Remove(path); err != nil {
			return err
		}
	} else {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path+".new", data, 0o600); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
	}
	f.version++
	f.history = append(f.history, change{key, f.objects[key].data, data, f.version})
	if data == nil {
		delete(f.objects, key)
	} else {
		f.objects[key] = record{data, f.version}
	}
	close(f.changed)
	f.changed = make(chan struct{})
	return nil
}

// resourceFiles implements storage.Interface for one resource.
type resourceFiles struct {
	*files
	newObject func() runtime.Object
}

// Versioner implements storage.Interface.
func (f *resourceFiles) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// decode decodes a record into out.
func (f *resourceFiles) decode(r record, out runtime.Object) error {
	if _, _, err := f.codec.Decode(r.data, nil, out); err != nil {
		return err
	}
	// objects from storage have none
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return f.Versioner().UpdateObject(out, r.version)
}

func (f *resourceFiles) encode(obj runtime.Object) ([]byte, error) {
	if err := f.Versioner().PrepareObjectForStorage(obj); err != nil {
		return nil, err
	}
	return runtime.Encode(f.codec, obj)
}

// Create implements storage.Interface.
func (f *resourceFiles) Create(
	_ context.Context, key string, obj, out runtime.Object, _ uint64,
) error {
	data, err := f.encode(obj.DeepCopyObject())
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, exists := f.objects[key]; exists {
		return storage.NewKeyExistsError(key, int64(r.version))
	}
	if err := f.write(key, data); err != nil {
		return err
	}
	return f.decode(f.objects[key], out)
}

// Get implements storage.Interface.
func (f *resourceFiles) Get(
	_ context.Context, key string, options storage.GetOptions, out runtime.Object,
) error {
	f.mu.Lock()
	r, exists := f.objects[key]
	f.mu.Unlock()
	switch {
	case exists:
		return f.decode(r, out)
	case options.IgnoreNotFound:
		return runtime.SetZeroValue(out)
	default:
		return storage.NewKeyNotFoundError(key, 0)
	}
}

// GetList implements storage.Interface. It ignores the limit, which servers are allowed to do.
func (f *resourceFiles) GetList(
	_ context.Context, key string, options storage.ListOptions, list runtime.Object,
) error {
	found, version := f.find(key, options.Recursive)
	var items []runtime.Object
	for _, r := range found {
		obj := f.newObject()
		if err := f.decode(r, obj); err != nil {
			return err
		}
		if ok, err := options.Predicate.Matches(obj); err != nil {
			return err
		} else if ok {
			items = append(items, obj)
		}
	}
	if err := meta.SetList(list, items); err != nil {
		return err
	}
	return f.Versioner().UpdateList(list, version, "", nil)
}

// find returns the records below key, or only the record of key itself, sorted by key, and the
// current resource version.
func (f *resourceFiles) find(key string, below bool) ([]record, uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var keys []string
	for k := range f.objects {
		if within(k, key, below) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	var found []record
	for _, k := range keys {
		found = append(found, f.objects[k])
	}
	return found, f.version
}

func within(key, wanted string, below bool) bool {
	if below {
		return strings.HasPrefix(key, strings.TrimSuffix(wanted, "/")+"/")
	}
	return key == wanted
}

// GuaranteedUpdate implements storage.Interface. It retries if the object was changed concurrently.
func (f *resourceFiles) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions,
	try storage.UpdateFunc, _ runtime.Object,
) error {
	for ctx.Err() == nil {
		current := f.newObject()
		if err := f.Get(ctx, key, storage.GetOptions{
			IgnoreNotFound: ignoreNotFound,
		}, current); err != nil {
			return err
		}
		version, err := f.Versioner().ObjectResourceVersion(current)
		if err != nil {
			return err
		}
		if err := preconditions.Check(key, current); err != nil {
			return err
		}
		updated, _, err := try(current, storage.ResponseMeta{ResourceVersion: version})
		if err != nil {
			return err
		}
		data, err := f.encode(updated)
		if err != nil {
			return err
		}
		if done, err := f.replace(key, version, data, out); done || err != nil {
			return err
		}
	}
	return ctx.Err()
}

// replace stores data under key if the object still has the given version, and reports whether it
// does.
func (f *resourceFiles) replace(
	key string, version uint64, data []byte, out runtime.Object,
) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.objects[key].version != version {
		return false, nil
	}
	if !bytes.Equal(data, f.objects[key].data) {
		if err := f.write(key, data); err != nil {
			return false, err
		}
	}
	return true, f.decode(f.objects[key], out)
}

// Delete implements storage.Interface.
func (f *resourceFiles) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions,
) error {
	for ctx.Err() == nil {
		if err := f.Get(ctx, key, storage.GetOptions{}, out); err != nil {
			return err
		}
		version, err := f.Versioner().ObjectResourceVersion(out)
		if err != nil {
			return err
		}
		if err := preconditions.Check(key, out); err != nil {
			return err
		}
		if err := validate(ctx, out); err != nil {
			return err
		}
		if done, err := f.remove(key, version); done || err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (f *resourceFiles) remove(key string, version uint64) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.objects[key].version != version {
		return false, nil
	}
	return true, f.write(key, nil)
}

// Stats implements storage.Interface.
func (f *resourceFiles) Stats(context.Context) (storage.Stats, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return storage.Stats{ObjectCount: int64(len(f.objects))}, nil
}

// GetCurrentResourceVersion implements storage.Interface.
func (f *resourceFiles) GetCurrentResourceVersion(context.Context) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version, nil
}

// ReadinessCheck implements storage.Interface.
func (f *resourceFiles) ReadinessCheck() error { return nil }

// RequestWatchProgress implements storage.Interface. It is used by watch caches only.
func (f *resourceFiles) RequestWatchProgress(context.Context) error { return nil }

// EnableResourceSizeEstimation implements storage.Interface.
func (f *resourceFiles) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// CompactRevision implements storage.Interface. Nothing is compacted.
func (f *resourceFiles) CompactRevision() int64 { return 0 }
