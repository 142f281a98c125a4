// Package storage keeps the objects of the three servers in etcd: a store per resource, whose watch cache starts with the first watch.
//
// kube-apiserver starts a watch cache for every resource it serves, about fifteen goroutines each. Here a resource that nobody watches
// costs nothing but its route: reads and writes go to etcd, which in this process is a function call away.
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
	"google.golang.org/grpc/metadata"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// DefaultPrefix is where kube-apiserver keeps its keys.
const DefaultPrefix = "/registry"

// historyKept is for how long etcd keeps what objects were, for watches that are behind: kube-apiserver's --etcd-compaction-interval.
const historyKept = 5 * time.Minute

// Backend is the etcd that the stores share. Make one with [New] and end it with [Backend.Stop].
type Backend struct {
	client *etcdkubernetes.Client
	prefix string
	// compactor forgets history, so that etcd does not grow with every change. Several servers on one etcd take turns.
	compactor interface {
		etcd3.Compactor
		Stop()
	}

	mu      sync.Mutex
	caches  map[*cachedOnWatch]struct{}
	held    bool
	stopped bool
	damaged []*reader // those that met an object that cannot be decoded

	undecodable chan struct{} // closed when damaged is not empty
}

// New makes a backend on client, which stays the caller's to close. An empty prefix stands for [DefaultPrefix].
func New(client *clientv3.Client, prefix string) *Backend {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	traced := clientv3.NewCtxClient(client.Ctx())
	traced.KV, traced.Lease, traced.Watcher, traced.Maintenance = tracedKV{client.KV}, client.Lease, client.Watcher, client.Maintenance
	kc := &etcdkubernetes.Client{Client: traced}
	kc.Kubernetes = kc
	// Without the answer, watch caches refuse to send the initial events of a watch, which is how informers list.
	checker := feature.DefaultFeatureSupportChecker
	if len(client.Endpoints()) > 0 {
		checker.CheckClient(client.Ctx(), client, apistorage.RequestWatchProgress)
	} else {
		checker.CheckClient(client.Ctx(), inProcess{}, apistorage.RequestWatchProgress)
	}
	return &Backend{
		client: kc, prefix: prefix, compactor: etcd3.NewCompactor(client, historyKept, clock.RealClock{}, nil),
		caches: map[*cachedOnWatch]struct{}{}, undecodable: make(chan struct{}),
	}
}

// inProcess answers for an etcd without endpoints what checkers of features ask. They ask in the background, and an etcd that is called
// when it has stopped already takes the process along.
type inProcess struct{}

// Endpoints is one that stands for all etcds in this process.
func (inProcess) Endpoints() []string { return []string{"in process"} }

// Status is no more than the version.
func (inProcess) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{Version: version.Version}, nil
}

// Hold keeps all stores alive until Stop, though their owners destroy them. A server destroys its stores while requests may still begin
// to watch, and such a watch on a cache that has ended would wait for seconds.
func (b *Backend) Hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = true
}

// Stop ends the watch caches and the compactor, and waits for them.
func (b *Backend) Stop() {
	b.mu.Lock()
	b.stopped = true
	caches := b.caches
	b.caches = nil
	b.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(b.compactor.Stop)
	for c := range caches {
		wg.Go(c.stop)
	}
	wg.Wait()
}

// Cached are the resources that have been watched and so have a watch cache, in no order.
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

// Codec says how the objects of a resource are written: the codec, and the versions it chooses from for writing.
type Codec struct {
	runtime.Codec
	Versioner runtime.GroupVersioner
}

// Resources gives generic registries their stores. Objects are kept below prefix/PathOf(resource).
type Resources struct {
	Backend *Backend
	// CodecOf chooses the codec of a resource; example is one of its objects, or nil if only the path is asked for.
	CodecOf func(resource schema.GroupResource, example runtime.Object) (Codec, error)
	// PathOf is the path of a resource below the prefix.
	PathOf func(resource schema.GroupResource) string
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (r *Resources) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options := generic.RESTOptions{
		Decorator:               r.Backend.newStore,
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
	return options, nil
}

// newStore is the generic.StorageDecorator of every resource.
func (b *Backend) newStore(
	config *storagebackend.ConfigForResource,
	resourcePrefix string,
	keyFunc func(obj runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object,
	getAttrs apistorage.AttrFunc,
	triggers apistorage.IndexerFuncs,
	indexers *cache.Indexers,
) (apistorage.Interface, factory.DestroyFunc, error) {
	versioner := apistorage.APIObjectVersioner{}
	transformer := config.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	r := &reader{config.Codec, transformer, below(config.Prefix, resourcePrefix), newFunc, b.note}
	store, err := etcd3.New(b.client, b.compactor, r, newFunc, newListFunc, config.Prefix, resourcePrefix, config.GroupResource,
		r, config.LeaseManagerConfig, etcd3.NewDefaultDecoder(r, versioner), versioner)
	if err != nil {
		return nil, nil, fmt.Errorf("store of %s: %w", config.GroupResource, err)
	}
	s := &cachedOnWatch{
		Interface: store,
		close:     store.Close,
		// Events are many, and read once at most.
		neverCached: config.GroupResource == schema.GroupResource{Resource: "events"},
		config: cacher.Config{
			Storage:             store,
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
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil, nil, fmt.Errorf("store of %s: the backend is stopped", config.GroupResource)
	}
	b.caches[s] = struct{}{}
	return s, func() {
		b.mu.Lock()
		if b.held {
			b.mu.Unlock()
			return
		}
		delete(b.caches, s)
		b.mu.Unlock()
		s.stop()
	}, nil
}

// cachedOnWatch is an etcd store in front of which the first watch puts a watch cache.
type cachedOnWatch struct {
	apistorage.Interface // straight to etcd
	close                func()
	config               cacher.Config
	neverCached          bool // kube-apiserver has no cache for the resource either, which shows

	cached atomic.Pointer[cacher.CacheDelegator] // set once the cache is ready
	since  atomic.Uint64                         // the cache knows all changes after this resource version

	mu      sync.Mutex
	cacher  *cacher.Cacher
	stopped bool
}

// startTimeout bounds the wait for a watch cache, which reads all objects of its resource first.
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
		// The cache began no later than now.
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
	if delegator != nil {
		delegator.Stop()
	}
	if c != nil {
		c.Stop()
	}
	s.close()
}

// readerAt is where reads at a resource version go. The cache answers those that take any version; for the others it would first have to
// learn how far it is behind etcd, which in this process is as near.
func (s *cachedOnWatch) readerAt(resourceVersion string) apistorage.Interface {
	if resourceVersion == "0" {
		return s.reader()
	}
	return s.Interface
}

// reader is the cache if there is one.
func (s *cachedOnWatch) reader() apistorage.Interface {
	if c := s.cached.Load(); c != nil {
		return c
	}
	return s.Interface
}

// Watch watches the cache, but for what was before the cache: that only etcd knows.
func (s *cachedOnWatch) Watch(ctx context.Context, key string, opts apistorage.ListOptions) (watch.Interface, error) {
	if s.neverCached {
		return s.Interface.Watch(ctx, key, opts)
	}
	c, err := s.cache(ctx)
	if err != nil {
		return nil, err
	}
	from, err := s.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err == nil && from > 0 && from < s.since.Load() && opts.SendInitialEvents == nil {
		return s.Interface.Watch(ctx, key, opts)
	}
	if opts.ResourceVersion == "" || opts.SendInitialEvents != nil {
		defer s.hurry(ctx)()
	}
	return c.Watch(ctx, key, opts)
}

// A cache is told how far etcd is while a watch waits for it: soon again at first, for an answer takes a fraction of firstHurry, then more
// and more seldom, for each answer goes to all caches, and a machine that is busy gets no faster by it.
const (
	firstHurry = 2 * time.Millisecond
	lastHurry  = 100 * time.Millisecond
)

// hurry brings the cache up to date until stop is called. A watch that begins at the present waits until the cache knows that it has
// seen everything, about which a cache asks etcd every tenth of a second.
func (s *cachedOnWatch) hurry(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(cacheContext(ctx))
	var asking sync.WaitGroup
	asking.Go(func() {
		for pause := firstHurry; ; pause = min(2*pause, lastHurry) {
			if err := s.RequestWatchProgress(ctx); err != nil {
				return // then the cache's own question has to do
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

// cacheContext marks the requests of a watch cache as k8s.io/apiserver does: etcd answers on the stream of the mark.
func cacheContext(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs("source", "cache"))
}

// Get and GetList answer as a watch cache does where that shows: an unreadable resource version is an internal error, and a list at
// version 0 is whole whatever the limit.

func (s *cachedOnWatch) Get(ctx context.Context, key string, opts apistorage.GetOptions, out runtime.Object) error {
	if s.neverCached {
		return s.Interface.Get(ctx, key, opts, out)
	}
	if _, err := s.Versioner().ParseResourceVersion(opts.ResourceVersion); err != nil {
		return err
	}
	return s.readerAt(opts.ResourceVersion).Get(ctx, key, opts, out)
}

func (s *cachedOnWatch) GetList(ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object) error {
	if !s.neverCached && opts.ResourceVersion == "0" && opts.ResourceVersionMatch != metav1.ResourceVersionMatchExact {
		opts.Predicate.Limit = 0
	}
	return s.readerAt(opts.ResourceVersion).GetList(ctx, key, opts, list)
}

func (s *cachedOnWatch) Delete(ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions, validate apistorage.ValidateObjectFunc, existing runtime.Object, opts apistorage.DeleteOptions) error {
	return s.reader().Delete(ctx, key, out, preconditions, validate, existing, opts)
}

func (s *cachedOnWatch) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, preconditions *apistorage.Preconditions, update apistorage.UpdateFunc, existing runtime.Object) error {
	return s.reader().GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, existing)
}

func (s *cachedOnWatch) ReadinessCheck() error { return nil }
