package garbagecollector

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// service is an APIService of an extension API server.
type service struct {
	version   schema.GroupVersion
	priority  int32
	available bool
}

// remotePrefix begins the keys of objects of extension API servers. No stored key begins so.
const remotePrefix = "//"

func prefixOf(r schema.GroupVersionResource) string {
	return remotePrefix + r.Group + "/" + r.Version + "/" + r.Resource + "/"
}

// rediscovery is how often the resources of extension API servers are discovered, as in
// kube-controller-manager. Nothing says that they have changed. After a failure, it is tried again
// after rediscoveryRetry.
const (
	rediscovery      = 30 * time.Second
	rediscoveryRetry = time.Second
)

// remotes watches the objects of extension API servers. It has goroutines only while there are such
// servers.
type remotes struct {
	run      *run
	informed map[schema.GroupVersionResource]*informed // used only by follow

	mu       sync.Mutex
	services map[string]service
	started  bool
	changed  chan struct{}
}

// informed is a resource with an informer.
type informed struct {
	kind   string
	cancel context.CancelFunc
	ended  chan struct{}
}

func newRemotes(r *run) *remotes {
	return &remotes{
		run:      r,
		informed: map[schema.GroupVersionResource]*informed{},
		changed:  make(chan struct{}, 1),
	}
}

// set sets the APIServices of extension API servers.
func (m *remotes) set(services map[string]service) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.services = services
	if len(services) > 0 && !m.started {
		m.started = true
		m.run.running.Go(m.follow)
	}
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// follow keeps the informers as the APIServices and discovery want them.
func (m *remotes) follow() {
	ctx := m.run.Context()
	defer func() {
		for r := range m.informed {
			m.stop(r)
		}
	}()
	for {
		var again <-chan time.Time
		if wait := m.sync(ctx); wait > 0 {
			again = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		case <-again:
		}
	}
}

// sync starts and stops informers. It returns when to look again, or 0 if only a change of the
// APIServices matters.
func (m *remotes) sync(ctx context.Context) time.Duration {
	m.mu.Lock()
	var all []service
	for _, s := range m.services {
		all = append(all, s)
	}
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b service) int {
		return cmp.Or(strings.Compare(a.version.Group, b.version.Group),
			cmp.Compare(b.priority, a.priority),
			version.CompareKubeAwareVersionStrings(b.version.Version, a.version.Version))
	})
	var wait time.Duration
	if len(all) > 0 {
		wait = rediscovery
	}
	wanted := map[schema.GroupVersionResource]string{}
	seen := map[schema.GroupKind]struct{}{} // in a better version
	want := func(r schema.GroupVersionResource, kind string) {
		gk := schema.GroupKind{Group: r.Group, Kind: kind}
		if _, ok := seen[gk]; !ok {
			seen[gk], wanted[r] = struct{}{}, kind
		}
	}
	for _, s := range all {
		var resources []metav1.APIResource
		var err error
		if s.available {
			resources, err = m.run.kinds.list(ctx, s.version)
		}
		if err != nil {
			wait = rediscoveryRetry
		}
		if !s.available || err != nil { // as before
			for r, i := range m.informed {
				if r.GroupVersion() == s.version {
					want(r, i.kind)
				}
			}
		}
		for _, r := range resources {
			if has(r.Verbs, "delete", "list", "watch") {
				want(s.version.WithResource(r.Name), r.Kind)
			}
		}
	}
	for r, i := range m.informed {
		if wanted[r] != i.kind {
			m.stop(r)
		}
	}
	for r, kind := range wanted {
		if m.informed[r] == nil {
			m.start(ctx, r, kind)
		}
	}
	return wait
}

func has(all metav1.Verbs, verbs ...string) bool {
	for _, v := range verbs {
		if !slices.Contains(all, v) {
			return false
		}
	}
	return true
}

func (m *remotes) start(ctx context.Context, r schema.GroupVersionResource, kind string) {
	ctx, cancel := context.WithCancel(ctx)
	i := &informed{kind, cancel, make(chan struct{})}
	m.informed[r] = i
	informer := metadatainformer.NewFilteredMetadataInformer(m.run.Metadata, r, metav1.NamespaceAll, 0,
		cache.Indexers{}, nil).Informer()
	put := func(obj any) {
		o := newObject(obj.(*metav1.PartialObjectMetadata))
		o.kind, o.remote, o.revision = r.GroupVersion().WithKind(kind), &r, 0
		m.run.graph.update(prefixOf(r)+cache.MetaObjectToName(obj.(metav1.Object)).String(), o)
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    put,
		UpdateFunc: func(_, obj any) { put(obj) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				m.run.graph.update(prefixOf(r)+name.String(), nil)
			}
		},
	})
	if err != nil { // only for an informer that has stopped
		utilruntime.HandleErrorWithContext(ctx, err, "Watching an extension API server failed",
			"resource", r)
	}
	m.run.running.Go(func() {
		defer close(i.ended)
		informer.RunWithContext(ctx)
	})
}

func (m *remotes) stop(r schema.GroupVersionResource) {
	i := m.informed[r]
	i.cancel()
	<-i.ended
	delete(m.informed, r)
	m.run.graph.forget(prefixOf(r))
}
