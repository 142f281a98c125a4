package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
)

// cacheStorage is the store of a resource as its watch cache uses it.
//
// Its etcd watch stream is not shared with other caches. An external etcd reports the progress of a
// stream only once it has reached the start of each watch of the stream. A cache's watch starts
// after the last change. On a shared stream, a cache that has just started would therefore keep the
// others from learning that they have seen all changes until the next change, and watches would
// wait for seconds. kube-apiserver has an etcd client for each resource.
type cacheStorage struct {
	apistorage.Interface
	backend  *Backend
	resource schema.GroupResource
	reader   *reader
	watches  *cacheWatches
}

// serial reports whether events are decoded one after the other, as they come. A process that holds
// the etcd gains nothing from decoding several at a time, unless each waits for a webhook that
// converts custom resources.
func (s cacheStorage) serial() bool {
	_, custom := s.reader.newFunc().(*unstructured.Unstructured)
	return s.backend.embedded && !custom
}

// IsWatchListSemanticsUnSupported makes the reflector of a cache list before it watches.
func (s cacheStorage) IsWatchListSemanticsUnSupported() bool { return s.serial() }

// EnableResourceSizeEstimation does nothing. The sizes are for the metrics of storage, which the
// generic registries do not collect here.
func (s cacheStorage) EnableResourceSizeEstimation(apistorage.KeysFunc) error { return nil }

func (s cacheStorage) on(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs("cache", s.resource.String()))
}

func (s cacheStorage) RequestWatchProgress(ctx context.Context) error {
	return s.Interface.RequestWatchProgress(s.on(ctx))
}

func (s cacheStorage) Watch(
	ctx context.Context, key string, opts apistorage.ListOptions,
) (watch.Interface, error) {
	return s.watches.begin(s.on(ctx), func(ctx context.Context) (watch.Interface, error) {
		after, err := versioner.ParseResourceVersion(opts.ResourceVersion)
		if err != nil {
			return nil, err
		}
		if !s.serial() || after == 0 {
			return s.Interface.Watch(ctx, key, opts)
		}
		// The library's store adds this, too. RequestWatchProgress asks watches with the same
		// metadata.
		ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		w := &cacheWatch{storage: s, cancel: cancel, events: make(chan watch.Event, watchBuffer)}
		changes := s.backend.client.Watch(ctx, s.reader.prefix, clientv3.WithPrefix(),
			clientv3.WithRev(int64(after)+1), clientv3.WithProgressNotify())
		s.watches.running.Go(func() { w.run(ctx, changes) })
		return w, nil
	})
}

// cacheWatches are the watches of a watch cache, which has one at a time.
//
// They end before the cache, which otherwise might never end: its reflector would wait until there
// is room in a queue from which the cache no longer takes anything.
type cacheWatches struct {
	running sync.WaitGroup // every cacheWatch

	mu      sync.Mutex
	current *endingWatch // may be nil, or have ended
	stopped bool
}

// begin returns the watch that start begins. After stop, it returns one without events.
func (w *cacheWatches) begin(
	ctx context.Context, start func(context.Context) (watch.Interface, error),
) (watch.Interface, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return watch.NewProxyWatcher(make(chan watch.Event)), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	started, err := start(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	w.current = &endingWatch{Interface: started, cancel: cancel, ended: make(chan struct{})}
	return w.current, nil
}

// stop ends the current watch and waits until the cache has taken its last event.
func (w *cacheWatches) stop() {
	w.mu.Lock()
	w.stopped = true
	current := w.current
	w.mu.Unlock()
	if current != nil {
		current.cancel()
		<-current.ended
	}
	w.running.Wait()
}

// endingWatch is a watch that closes ended when its reader stops it.
type endingWatch struct {
	watch.Interface
	cancel context.CancelFunc
	once   sync.Once
	ended  chan struct{}
}

// Stop implements watch.Interface.
func (w *endingWatch) Stop() {
	w.once.Do(func() {
		w.Interface.Stop()
		w.cancel()
		close(w.ended)
	})
}

// cacheWatch is the watch of a watch cache. It has one goroutine, where the watch of the library's
// store has five, four of which an event passes through.
type cacheWatch struct {
	storage cacheStorage
	cancel  context.CancelFunc
	events  chan watch.Event
}

// watchBuffer is the number of decoded events that may wait for the watch cache.
const watchBuffer = 100

// ResultChan implements watch.Interface.
func (w *cacheWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *cacheWatch) Stop() { w.cancel() }

// run passes on the changes until ctx ends, etcd ends the watch or a change cannot be read.
func (w *cacheWatch) run(ctx context.Context, changes clientv3.WatchChan) {
	defer close(w.events)
	defer w.cancel()
	for {
		select {
		case <-ctx.Done():
			return
		case change, ok := <-changes:
			if !ok {
				return
			}
			if err := w.pass(ctx, change); err != nil {
				w.send(ctx, watch.Event{Type: watch.Error, Object: statusOf(err)})
				return
			}
		}
	}
}

// pass passes on the events of a response, or tells the cache how far etcd is.
func (w *cacheWatch) pass(ctx context.Context, change clientv3.WatchResponse) error {
	if err := change.Err(); err != nil {
		return err
	}
	if change.IsProgressNotify() {
		metrics.RecordEtcdBookmark(w.storage.resource)
		object := w.storage.reader.newFunc()
		if err := versioner.UpdateObject(object, uint64(change.Header.Revision)); err != nil {
			return err
		}
		w.send(ctx, watch.Event{Type: watch.Bookmark, Object: object})
		return nil
	}
	for _, e := range change.Events {
		received := time.Now()
		metrics.RecordEtcdEvent(w.storage.resource)
		event, err := w.event(ctx, e)
		if err != nil {
			return fmt.Errorf("read the change of %s: %w", e.Kv.Key, err)
		}
		event.Object = timedObject{event.Object, received}
		w.send(ctx, event)
	}
	return nil
}

func (w *cacheWatch) send(ctx context.Context, event watch.Event) {
	select {
	case w.events <- event:
	case <-ctx.Done():
	}
}

// event returns a change as an event with the decoded object. That of a deletion has the object as
// it was before, with the resource version of the deletion.
func (w *cacheWatch) event(ctx context.Context, e *clientv3.Event) (watch.Event, error) {
	kind, kv := watch.Modified, e.Kv
	switch {
	case e.Type == clientv3.EventTypeDelete:
		before, err := w.storage.backend.client.KV.Get(ctx, string(e.Kv.Key),
			clientv3.WithRev(e.Kv.ModRevision-1))
		if err != nil {
			return watch.Event{}, err
		}
		if len(before.Kvs) == 0 {
			return watch.Event{}, errors.New("the deleted object is missing")
		}
		kind, kv = watch.Deleted, before.Kvs[0]
	case e.IsCreate():
		kind = watch.Added
	}
	object, err := w.storage.reader.object(ctx, kv, e.Kv.ModRevision)
	return watch.Event{Type: kind, Object: object}, err
}

// statusOf returns the status that tells a reflector why its watch ends.
func statusOf(err error) runtime.Object {
	status := apierrors.NewInternalError(err).Status()
	if errors.Is(err, rpctypes.ErrCompacted) {
		status = apierrors.NewResourceExpired(err.Error()).Status()
	}
	return &status
}

// timedObject tells the watch cache when etcd's change was received, for the metrics of watches.
// The cache removes it.
type timedObject struct {
	runtime.Object
	received time.Time
}

var _ apistorage.WatchEventWithRecordTime = timedObject{}

// RecordTime implements apistorage.WatchEventWithRecordTime.
func (o timedObject) RecordTime() time.Time { return o.received }

// Unwrap implements apistorage.WatchEventWithRecordTime.
func (o timedObject) Unwrap() runtime.Object { return o.Object }

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (o timedObject) GetObjectMeta() metav1.Object {
	m, err := meta.Accessor(o.Object)
	if err != nil {
		return nil
	}
	return m
}
