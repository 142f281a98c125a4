// Package etcdstore stores the objects of the three servers in etcd. Each resource has a store,
// whose watch cache starts with the first watch.
//
// kube-apiserver starts a watch cache for every resource that it serves, with about fifteen
// goroutines each. Here a resource that nobody watches costs nothing but its route: reads and
// writes go to etcd, which runs in the same process and is a function call away.
package etcdstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kinproc/kinproc/chain/internal/writers"
)

// DefaultPrefix is the prefix of kube-apiserver's keys.
const DefaultPrefix = "/registry"

// Config says where and how objects are stored.
type Config struct {
	// Client is that of etcd. The caller closes it.
	Client *clientv3.Client
	// Prefix is that of all keys. Default: [DefaultPrefix].
	Prefix string
	// HistoryKept is how long old revisions are kept at least, except that there are at most
	// 100,000 of them, and 256 MiB or a quarter of the database's quota.
	HistoryKept time.Duration
	// Database is that of an embedded etcd, or nil.
	Database Database
}

// Backend is the etcd that the stores share. Create one with [New] and stop it with [Backend.Stop].
type Backend struct {
	client   *etcdkubernetes.Client
	embedded bool // the etcd is in this process
	prefix   string
	// compactor removes old revisions, so that etcd does not grow with every change. If several
	// servers share an etcd, they take turns.
	compactor interface {
		etcd3.Compactor
		Stop()
	}

	feed     *feed // of the informers
	counters *counters

	writers writers.Memory
	writing atomic.Int32 // transactions whose writer will be known
	cap     revisionCap
	quota   quota
	turns   *turns // of those who read old versions

	patience time.Duration // of a search for old versions

	mu      sync.Mutex
	caches  map[*cachedOnWatch]struct{}
	held    bool
	stopped bool
	damaged []*reader // the readers of resources in which an object cannot be decoded
	resets  []resetMark
	opened  map[schema.GroupResource]int // the number of stores ever opened

	undecodable chan struct{} // closed when damaged is not empty
	readOnly    bool
	encryption  value.ResourceTransformers // nil: objects are stored as they are

	// beginning is held for reading while a watch begins, and for writing during a reset
	beginning sync.RWMutex
}

// New returns a backend. It is stopped with [Backend.Stop].
func New(c Config) *Backend {
	client, prefix := c.Client, c.Prefix
	if prefix == "" {
		prefix = DefaultPrefix
	}
	traced := clientv3.NewCtxClient(client.Ctx())
	traced.Lease, traced.Watcher, traced.Maintenance = client.Lease, client.Watcher, client.Maintenance
	kc := &etcdkubernetes.Client{Client: traced}
	counters := newCounters(traced)
	// If this is not checked, watch caches refuse to send the initial events of a watch, which is
	// how informers list.
	checker, embedded := feature.DefaultFeatureSupportChecker, len(client.Endpoints()) == 0
	if embedded {
		checker.CheckClient(client.Ctx(), inProcess{}, apistorage.RequestWatchProgress)
	} else {
		checker.CheckClient(client.Ctx(), client, apistorage.RequestWatchProgress)
	}
	b := &Backend{
		client:      kc,
		embedded:    embedded,
		prefix:      prefix,
		feed:        newFeed(client, prefix),
		counters:    counters,
		compactor:   etcd3.NewCompactor(onFeedStream(client), c.HistoryKept, clock.RealClock{}, nil),
		caches:      map[*cachedOnWatch]struct{}{},
		opened:      map[schema.GroupResource]int{},
		turns:       newTurns(),
		patience:    searchTime,
		undecodable: make(chan struct{}),
	}
	kc.Kubernetes = pager{roomy{kc, b}, counters}
	kept := bytesKept(c.Database)
	b.quota.start(onFeedStream(client), &b.writers, c.Database, kept)
	b.cap.start(onFeedStream(client), &b.writers, c.Database, RevisionsKept, kept)
	traced.KV = tracedKV{client.KV, b}
	traced.Lease = roomyLease{client.Lease, &b.quota}
	return b
}

// wrote notes that a request has written a revision. The sum is that of the change.
func (b *Backend) wrote(ctx context.Context, revision int64, sum uint32) {
	if b.writers.Note(ctx, revision, sum) {
		b.writers.Forget(b.compactor.CompactRevision())
	}
}

// replaced notes that a revision with a value of some bytes has replaced one.
func (b *Backend) replaced(revision, bytes, size int64) {
	b.cap.reached(revision, bytes)
	b.quota.wrote(size)
}

// inProcess answers feature checkers for an etcd without endpoints. They ask in the background, and
// a call to an embedded etcd that has already stopped would crash the process.
type inProcess struct{}

// Endpoints returns one endpoint that stands for any etcd in this process.
func (inProcess) Endpoints() []string { return []string{"in process"} }

// Status returns only the version.
func (inProcess) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{Version: version.Version}, nil
}

// Encrypt makes stores transform the objects of each resource before they are written and after
// they are read. It must be called before the first store is made.
func (b *Backend) Encrypt(by value.ResourceTransformers) { b.encryption = by }

// Hold keeps all stores alive until Stop, even if their owners destroy them. A server destroys its
// stores while requests may still start to watch, and a watch on a stopped cache would wait for
// seconds.
func (b *Backend) Hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = true
}

// Stop stops the watch caches and the compactor, and waits for them.
func (b *Backend) Stop() {
	b.mu.Lock()
	b.stopped = true
	caches := b.caches
	b.caches = nil
	b.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(b.compactor.Stop)
	wg.Go(b.feed.stop)
	wg.Go(b.cap.stop)
	wg.Go(b.quota.stop)
	wg.Go(b.counters.stop)
	wg.Go(b.writers.Stop)
	for c := range caches {
		wg.Go(c.stop)
	}
	wg.Wait()
}

// Cached returns the resources that have a watch cache because they have been watched, in no
// particular order.
func (b *Backend) Cached() []schema.GroupResource {
	b.mu.Lock()
	defer b.mu.Unlock()
	var resources []schema.GroupResource
	for c := range b.caches {
		if c.cached.Load() != nil {
			resources = append(resources, c.config.GroupResource)
		}
	}
	return resources
}

// Codec is the codec of a resource's objects, and the versions that it may encode to.
type Codec struct {
	runtime.Codec
	Versioner runtime.GroupVersioner
}

// Resources provides the stores of generic registries. Objects are stored below
// prefix/PathOf(resource).
type Resources struct {
	Backend *Backend
	// CodecOf returns the codec of a resource; example is one of its objects, or nil if only the
	// path is needed.
	CodecOf func(resource schema.GroupResource, example runtime.Object) (Codec, error)
	// PathOf returns the path of a resource below the prefix.
	PathOf func(resource schema.GroupResource) string
	// Wrap, if set, returns the store to use in place of one from which watches are cached.
	Wrap func(apistorage.Interface, schema.GroupResource) apistorage.Interface
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (r *Resources) GetRESTOptions(
	resource schema.GroupResource, example runtime.Object,
) (generic.RESTOptions, error) {
	options := generic.RESTOptions{
		Decorator:               r.newStore,
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: 4,
		ResourcePrefix:          r.PathOf(resource),
	}
	codec, err := r.CodecOf(resource, example)
	if err != nil {
		return generic.RESTOptions{}, fmt.Errorf("codec of %s: %w", resource, err)
	}
	options.StorageConfig = &storagebackend.ConfigForResource{
		GroupResource: resource,
		Config: storagebackend.Config{
			Prefix:              r.Backend.prefix,
			Codec:               codec,
			EncodeVersioner:     codec.Versioner,
			EventsHistoryWindow: cacher.DefaultEventFreshDuration,
			LeaseManagerConfig:  etcd3.NewDefaultLeaseManagerConfig(),
		},
	}
	if r.Backend.encryption != nil {
		options.StorageConfig.Transformer = r.Backend.encryption.TransformerForResource(resource)
	}
	return options, nil
}

// newStore is the generic.StorageDecorator of every resource.
func (r *Resources) newStore(
	config *storagebackend.ConfigForResource,
	resourcePrefix string,
	keyFunc func(obj runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object,
	getAttrs apistorage.AttrFunc,
	triggers apistorage.IndexerFuncs,
	indexers *cache.Indexers,
) (apistorage.Interface, factory.DestroyFunc, error) {
	b, versioner := r.Backend, apistorage.APIObjectVersioner{}
	transformer := config.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	read := &reader{config.Codec, transformer, below(config.Prefix, resourcePrefix), newFunc, b.note}
	store, err := etcd3.New(b.client, b.compactor, read, newFunc, newListFunc, config.Prefix,
		resourcePrefix, config.GroupResource, read, config.LeaseManagerConfig,
		etcd3.NewDefaultDecoder(read, versioner), versioner)
	if err != nil {
		return nil, nil, fmt.Errorf("store of %s: %w", config.GroupResource, err)
	}
	s := &cachedOnWatch{
		Interface: store,
		backend:   b,
		close:     store.Close,
		reader:    read,
		// Events are numerous, and read once at most.
		neverCached: config.GroupResource == schema.GroupResource{Resource: "events"},
		config: cacher.Config{
			Versioner:           versioner,
			GroupResource:       config.GroupResource,
			EventsHistoryWindow: config.EventsHistoryWindow,
			ResourcePrefix:      resourcePrefix,
			KeyFunc:             keyFunc,
			NewFunc:             newFunc,
			NewListFunc:         newListFunc,
			GetAttrsFunc:        getAttrs,
			IndexerFuncs:        triggers,
			Indexers:            indexers,
			Codec:               config.Codec,
		},
	}
	s.config.Storage = cacheStorage{store, b, config.GroupResource, read, &s.watches}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil, nil, fmt.Errorf("store of %s: the backend is stopped", config.GroupResource)
	}
	b.caches[s] = struct{}{}
	b.opened[config.GroupResource]++
	destroy := func() {
		b.mu.Lock()
		if b.held {
			b.mu.Unlock()
			return
		}
		delete(b.caches, s)
		b.mu.Unlock()
		s.stop()
	}
	if r.Wrap == nil {
		return s, destroy, nil
	}
	return r.Wrap(s, config.GroupResource), destroy, nil
}

// cachedOnWatch is an etcd store that gets a watch cache with the first watch.
type cachedOnWatch struct {
	apistorage.Interface // directly to etcd
	backend              *Backend
	close                func()
	reader               *reader
	config               cacher.Config
	// kube-apiserver has no cache for the resource either, which clients can observe
	neverCached bool

	cached atomic.Pointer[cacher.CacheDelegator] // set once the cache is ready
	// the cache has all changes after this resource version
	since atomic.Uint64

	mu      sync.Mutex
	cacher  *cacher.Cacher
	stopped bool

	starting sync.WaitGroup // the cache, in the background
	watches  cacheWatches
}

// startTimeout limits the wait for a watch cache, which first reads all objects of its resource.
const startTimeout = 30 * time.Second

// cache starts the watch cache if there is none and waits until it is ready.
func (s *cachedOnWatch) cache(ctx context.Context) (*cacher.CacheDelegator, error) {
	if c := s.cached.Load(); c != nil {
		return c, nil
	}
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return nil, apistorage.ErrStorageNotReady
	}
	if s.cacher == nil {
		c, err := cacher.NewCacherFromConfig(s.config)
		if err != nil {
			s.mu.Unlock()
			return nil, err
		}
		s.cacher = c
	}
	c := s.cacher
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.Wait(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, apistorage.ErrStorageNotReady
	}
	if s.cached.Load() == nil {
		// The cache started at this resource version or before.
		now, err := s.GetCurrentResourceVersion(ctx)
		if err != nil {
			return nil, err
		}
		s.since.Store(now)
		s.cached.Store(cacher.NewCacheDelegator(c, s.Interface))
	}
	return s.cached.Load(), nil
}

func (s *cachedOnWatch) stop() {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return
	}
	s.stopped = true
	c, delegator := s.cacher, s.cached.Load()
	s.mu.Unlock()
	s.watches.stop()
	if delegator != nil {
		delegator.Stop()
	}
	if c != nil {
		c.Stop()
	}
	s.starting.Wait()
	s.close()
}

// readerAt returns the store for reads at a resource version. The cache serves reads that accept
// any version. For the others, the cache would first have to ask etcd how far it is behind, and
// reading from the etcd in this process is no slower, unless it is a large list; see listLatest.
// The cache sees no views.
func (s *cachedOnWatch) readerAt(
	ctx context.Context, resourceVersion string,
) apistorage.Interface {
	if resourceVersion == "0" && viewOf(ctx) == nil {
		return s.current()
	}
	return s.Interface
}

// current returns the cache if there is one, and the etcd store otherwise.
func (s *cachedOnWatch) current() apistorage.Interface {
	if c := s.cached.Load(); c != nil {
		return c
	}
	return s.Interface
}

// Watch watches the cache, or etcd if the watch starts before the cache does.
func (s *cachedOnWatch) Watch(
	ctx context.Context, key string, opts apistorage.ListOptions,
) (watch.Interface, error) {
	s.backend.beginning.RLock()
	defer s.backend.beginning.RUnlock()
	from, err := s.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err == nil && from > 0 && opts.SendInitialEvents == nil {
		if err := s.checkReset(from); err != nil {
			return nil, err
		}
	}
	if v := viewOf(ctx); v != nil {
		opts.ProgressNotify = opts.Predicate.AllowWatchBookmarks
		w, err := s.Interface.Watch(ctx, key, opts)
		if err != nil {
			return nil, err
		}
		return s.backend.view(ctx, v, w), nil
	}
	if s.neverCached || s.watchedDirectly(ctx) {
		return s.Interface.Watch(ctx, key, opts)
	}
	c, cacheErr := s.cache(ctx)
	if cacheErr != nil {
		return nil, cacheErr
	}
	if err == nil && from > 0 && from < s.since.Load() && opts.SendInitialEvents == nil {
		// The next watch can start where the last bookmark was, and so at the cache.
		opts.ProgressNotify = opts.Predicate.AllowWatchBookmarks
		return s.Interface.Watch(ctx, key, opts)
	}
	if opts.ResourceVersion == "" || opts.SendInitialEvents != nil {
		defer s.hurry(ctx)()
	}
	return c.Watch(ctx, key, opts)
}

// watchedDirectly reports whether a watch is that of the server's own informer of custom resource
// CRDs or APIServices. It watches etcd. CRDs are large, and a watch cache would hold
// all of them again, some of them in several versions.
func (s *cachedOnWatch) watchedDirectly(ctx context.Context) bool {
	switch s.config.GroupResource {
	case schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
		schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}:
		who, ok := genericapirequest.UserFrom(ctx)
		return ok && who.GetName() == user.APIServerUser && s.cached.Load() == nil
	}
	return false
}

// While a watch waits for the cache, the cache is told at these intervals how far etcd is. Poll
// quickly at first, because an answer takes a fraction of firstHurry. Then back off, because
// polling does not make a busy machine faster.
const (
	firstHurry = 2 * time.Millisecond
	lastHurry  = 100 * time.Millisecond
)

// hurry keeps bringing the cache up to date until stop is called. A watch that starts at the
// present waits until the cache knows that it has seen all changes, and the cache itself asks etcd
// about that only every 100 ms. The wait does not end with ctx, so hurry does not either: a server
// that stops waits for the watch.
func (s *cachedOnWatch) hurry(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var asking sync.WaitGroup
	asking.Go(func() {
		for pause := firstHurry; ; pause = min(2*pause, lastHurry) {
			if err := s.config.Storage.RequestWatchProgress(ctx); err != nil {
				return // the cache's own polling has to suffice
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	})
	return func() { cancel(); asking.Wait() }
}

// Get and GetList behave like a watch cache where clients can tell the difference: an invalid
// resource version is an internal error, and a list at version 0 ignores the limit.

func (s *cachedOnWatch) Get(
	ctx context.Context, key string, opts apistorage.GetOptions, out runtime.Object,
) error {
	if s.neverCached {
		return s.Interface.Get(ctx, key, opts, out)
	}
	if _, err := s.Versioner().ParseResourceVersion(opts.ResourceVersion); err != nil {
		return err
	}
	return s.readerAt(ctx, opts.ResourceVersion).Get(ctx, key, opts, out)
}

func (s *cachedOnWatch) GetList(
	ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object,
) error {
	if !s.neverCached && opts.ResourceVersion == "0" &&
		opts.ResourceVersionMatch != metav1.ResourceVersionMatchExact {
		opts.Predicate.Limit = 0
	}
	if !s.neverCached && opts.ResourceVersion == "" && opts.Recursive && opts.Predicate.Limit == 0 &&
		opts.Predicate.Continue == "" && viewOf(ctx) == nil {
		return s.listLatest(ctx, key, opts, list)
	}
	return s.readerAt(ctx, opts.ResourceVersion).GetList(ctx, key, opts, list)
}

func (s *cachedOnWatch) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions,
	validate apistorage.ValidateObjectFunc, existing runtime.Object, opts apistorage.DeleteOptions,
) error {
	return s.current().Delete(ctx, key, out, preconditions, validate, existing, opts)
}

func (s *cachedOnWatch) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, update apistorage.UpdateFunc, existing runtime.Object,
) error {
	return s.current().GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions,
		tracedUpdate(ctx, update), existing)
}

// ReadinessCheck returns an error while a watch cache that has started still reads its objects.
func (s *cachedOnWatch) ReadinessCheck() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cacher != nil && !s.cacher.Ready() {
		return apistorage.ErrStorageNotReady
	}
	return s.Interface.ReadinessCheck()
}
