package etcdstore

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Informer returns an informer that reads a kind's objects from etcd instead of through the API.
// Example is an object of the kind in its hub version. A name restricts the informer to objects
// with that name; an empty name stands for all objects.
//
// Compared to an informer of client-go, it needs no route, no watch cache and no request, and
// handlers see a change as soon as etcd has it. It does not resync, because it misses no change. If
// the kind has no store when the informer starts, there are no objects.
func (b *Backend) Informer(example runtime.Object, name string) *Informer {
	return &Informer{
		backend: b,
		kind:    reflect.TypeOf(example),
		name:    name,
		objects: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
			cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		}),
		synced:  make(chan struct{}),
		stopped: make(chan struct{}),
	}
}

// storeOf returns the store of a kind, or nil if there is none.
func (b *Backend) storeOf(kind reflect.Type) *cachedOnWatch {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.caches {
		if reflect.TypeOf(s.config.NewFunc()) == kind {
			return s
		}
	}
	return nil
}

// Informer implements cache.SharedIndexInformer. It has goroutines only while it lists and while
// handlers have changes to handle.
type Informer struct {
	backend *Backend
	kind    reflect.Type
	name    string
	objects cache.Indexer
	synced  chan struct{} // closed after the first list
	stopped chan struct{} // closed when the informer has stopped

	// Start sets these fields before it subscribes to the feed.
	prefix string // of the keys
	reader *reader
	log    klog.Logger
	read   func() // lists as often as a list is wanted

	running sync.WaitGroup // the goroutines that list and those of the listeners

	mu        sync.Mutex
	started   bool
	relist    bool // a list is wanted
	reading   bool // a goroutine lists
	transform cache.TransformFunc
	listeners []*listener
	listing   bool              // changes wait in missed
	missed    []*clientv3.Event // while the informer lists
	listed    int64             // the revision of the last list
	revision  int64             // of the last change
}

var _ cache.SharedIndexInformer = &Informer{}

// Start starts the informer without waiting for the first list. The informer stops when ctx ends.
func (i *Informer) Start(ctx context.Context) {
	i.mu.Lock()
	if i.started {
		i.mu.Unlock()
		klog.FromContext(ctx).Info("The informer has been started more than once", "kind", i.kind)
		return
	}
	i.started = true
	i.mu.Unlock()
	store := i.backend.storeOf(i.kind)
	if store == nil {
		i.replace(nil, 0)
		context.AfterFunc(ctx, i.end)
		return
	}
	i.reader, i.prefix, i.log = store.reader, store.reader.prefix, klog.FromContext(ctx)
	i.read = func() { i.readUntil(ctx) }
	i.backend.feed.subscribe(ctx, i)
	context.AfterFunc(ctx, func() {
		i.backend.feed.unsubscribe(i)
		i.end()
	})
}

// Wait waits until an informer that has been started has stopped and its handlers have returned.
func (i *Informer) Wait() {
	<-i.stopped
	i.running.Wait()
}

// RunWithContext implements cache.SharedInformer.
func (i *Informer) RunWithContext(ctx context.Context) {
	i.Start(ctx)
	i.Wait()
}

func (i *Informer) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	close(i.stopped)
	for _, l := range i.listeners {
		l.stop()
	}
}

// reload asks for a list, and keeps the changes until the list is there.
func (i *Informer) reload() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.listing, i.relist = true, true
	if !i.reading && !i.IsStopped() {
		i.reading = true
		i.running.Go(i.read)
	}
}

// readUntil lists as often as a list is wanted, unless ctx ends before.
func (i *Informer) readUntil(ctx context.Context) {
	for i.beginList() {
		if err := i.list(ctx); err != nil && ctx.Err() == nil {
			i.log.Error(err, "An informer failed to list, trying again", "prefix", i.prefix)
			pause(ctx)
			i.reload()
		}
	}
}

// beginList reports whether a list is wanted.
func (i *Informer) beginList() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reading = i.relist && !i.IsStopped()
	i.relist, i.listing = false, i.listing || i.reading
	return i.reading
}

// listPage is the number of objects that are read from etcd at once.
const listPage = 500

// list reads all objects, and then applies the changes that happened meanwhile.
func (i *Informer) list(ctx context.Context) error {
	end := clientv3.WithRange(clientv3.GetPrefixRangeEnd(i.prefix))
	objects := map[string]runtime.Object{}
	var revision int64
	for key, more := i.prefix, true; more; {
		page, err := i.backend.client.KV.Get(ctx, key, end, clientv3.WithLimit(listPage),
			clientv3.WithRev(revision))
		if err != nil {
			return err
		}
		for _, kv := range page.Kvs {
			key = string(kv.Key) + "\x00"
			if !i.wants(kv) {
				continue
			}
			object, err := i.decode(ctx, kv)
			if err != nil {
				return fmt.Errorf("decode %s: %w", kv.Key, err)
			}
			objects[strings.TrimPrefix(string(kv.Key), i.prefix)] = object
		}
		revision, more = page.Header.Revision, page.More
	}
	i.replace(objects, revision)
	return nil
}

// wants reports whether an object has the name that the informer is restricted to.
func (i *Informer) wants(kv *mvccpb.KeyValue) bool {
	return i.name == "" || strings.HasSuffix(string(kv.Key), "/"+i.name)
}

func (i *Informer) decode(ctx context.Context, kv *mvccpb.KeyValue) (runtime.Object, error) {
	object, err := i.reader.object(ctx, kv, kv.ModRevision)
	if err != nil {
		return nil, err
	}
	// Objects of typed clients have no GroupVersionKind either.
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if i.transform == nil {
		return object, nil
	}
	transformed, err := i.transform(object)
	if err != nil {
		return nil, err
	}
	return transformed.(runtime.Object), nil
}

// replace makes objects the content of the cache.
func (i *Informer) replace(objects map[string]runtime.Object, revision int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for key, object := range objects {
		i.put(key, object)
	}
	for _, key := range i.objects.ListKeys() {
		if _, ok := objects[key]; !ok {
			old, _, _ := i.objects.GetByKey(key) // the indexer never returns an error
			_ = i.objects.Delete(old)
			i.notify(notification{old: cache.DeletedFinalStateUnknown{Key: key, Obj: old}})
		}
	}
	i.listed, i.revision, i.listing = revision, revision, false
	for _, e := range i.missed {
		i.apply(e)
	}
	i.missed = nil
	select {
	case <-i.synced:
	default:
		close(i.synced)
		for _, l := range i.listeners {
			l.add(notification{synced: true})
		}
	}
}

// handle passes a change on to the listeners, unless the informer lists at the moment.
func (i *Informer) handle(e *clientv3.Event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.listing {
		i.missed = append(i.missed, e)
		return
	}
	i.apply(e)
}

func (i *Informer) apply(e *clientv3.Event) {
	// Several objects may change at one revision, so the revision of the last change does not tell.
	if e.Kv.ModRevision <= i.listed || !i.wants(e.Kv) {
		return
	}
	key := strings.TrimPrefix(string(e.Kv.Key), i.prefix)
	i.revision = e.Kv.ModRevision
	if e.Type == mvccpb.DELETE {
		i.delete(key, e.Kv.ModRevision)
		return
	}
	object, err := i.decode(context.Background(), e.Kv)
	if err != nil {
		// The reader has noted the damage. The informer keeps the object as it was.
		i.log.Error(err, "An informer cannot decode an object", "key", string(e.Kv.Key))
		return
	}
	i.put(key, object)
}

func (i *Informer) put(key string, object runtime.Object) {
	old, found, _ := i.objects.GetByKey(key)
	if found && sameVersion(old, object) {
		return // seen before, and now listed again
	}
	_ = i.objects.Update(object)
	if !found {
		i.notify(notification{object: object, initial: !i.HasSynced()})
		return
	}
	i.notify(notification{old: old, object: object})
}

func sameVersion(a, b any) bool {
	x, _ := versioner.ObjectResourceVersion(a.(runtime.Object))
	y, _ := versioner.ObjectResourceVersion(b.(runtime.Object))
	return x == y
}

// delete removes an object. Its last state has the resource version of the deletion, as in the
// events of a watch.
func (i *Informer) delete(key string, revision int64) {
	old, found, _ := i.objects.GetByKey(key)
	if !found {
		return
	}
	_ = i.objects.Delete(old)
	last := old.(runtime.Object).DeepCopyObject()
	_ = versioner.UpdateObject(last, uint64(revision)) // fails only without metadata
	i.notify(notification{old: last})
}

func (i *Informer) notify(n notification) {
	for _, l := range i.listeners {
		l.add(n)
	}
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i *Informer) AddEventHandlerWithOptions(
	handler cache.ResourceEventHandler, _ cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	l := &listener{handler: handler, handling: &i.running, synced: make(chan struct{})}
	if i.IsStopped() {
		// The plugins for webhooks, which may be made at that time, ignore the error and would
		// crash without a registration.
		return l, fmt.Errorf("add a handler to the informer of %s: the informer has stopped", i.kind)
	}
	i.listeners = append(i.listeners, l)
	for _, object := range i.objects.List() {
		l.add(notification{object: object, initial: true})
	}
	if i.HasSynced() {
		l.add(notification{synced: true})
	}
	return l, nil
}

// AddEventHandler implements cache.SharedInformer.
func (i *Informer) AddEventHandler(
	handler cache.ResourceEventHandler,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer. There are no resyncs.
func (i *Informer) AddEventHandlerWithResyncPeriod(
	handler cache.ResourceEventHandler, _ time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// RemoveEventHandler implements cache.SharedInformer.
func (i *Informer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	l, ok := handle.(*listener)
	if !ok {
		return fmt.Errorf("remove a handler from the informer of %s: it belongs to another informer",
			i.kind)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.listeners = slices.DeleteFunc(i.listeners, func(other *listener) bool { return other == l })
	l.stop()
	return nil
}

// GetStore implements cache.SharedInformer.
func (i *Informer) GetStore() cache.Store { return i.objects }

// GetIndexer implements cache.SharedIndexInformer.
func (i *Informer) GetIndexer() cache.Indexer { return i.objects }

// AddIndexers implements cache.SharedIndexInformer. An index that exists already is left alone.
func (i *Informer) AddIndexers(indexers cache.Indexers) error {
	missing := cache.Indexers{}
	for name, index := range indexers {
		if _, ok := i.objects.GetIndexers()[name]; !ok {
			missing[name] = index
		}
	}
	return i.objects.AddIndexers(missing)
}

// GetController implements cache.SharedInformer.
func (i *Informer) GetController() cache.Controller { return i }

// Run implements cache.SharedInformer.
func (i *Informer) Run(stop <-chan struct{}) {
	i.RunWithContext(wait.ContextForChannel(stop))
}

// HasSynced implements cache.SharedInformer.
func (i *Informer) HasSynced() bool { return closed(i.synced) }

// HasSyncedChecker implements cache.SharedInformer.
func (i *Informer) HasSyncedChecker() cache.DoneChecker {
	return doneChecker{fmt.Sprint("etcd informer of ", i.kind), i.synced}
}

// IsStopped implements cache.SharedInformer.
func (i *Informer) IsStopped() bool { return closed(i.stopped) }

// LastSyncResourceVersion implements cache.SharedInformer.
func (i *Informer) LastSyncResourceVersion() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return strconv.FormatInt(i.revision, 10)
}

// SetTransform implements cache.SharedInformer.
func (i *Informer) SetTransform(transform cache.TransformFunc) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.started {
		return fmt.Errorf("set the transform of the informer of %s: it has started", i.kind)
	}
	i.transform = transform
	return nil
}

// SetWatchErrorHandler implements cache.SharedInformer. There is no reflector to call it with.
func (i *Informer) SetWatchErrorHandler(cache.WatchErrorHandler) error { return nil }

// SetWatchErrorHandlerWithContext implements cache.SharedInformer, like SetWatchErrorHandler.
func (i *Informer) SetWatchErrorHandlerWithContext(cache.WatchErrorHandlerWithContext) error {
	return nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// doneChecker implements cache.DoneChecker.
type doneChecker struct {
	name string
	done <-chan struct{}
}

func (d doneChecker) Name() string          { return d.name }
func (d doneChecker) Done() <-chan struct{} { return d.done }
