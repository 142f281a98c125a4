// Package informers makes the informers of the server itself.
package informers

import (
	"context"
	"maps"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/autoscaling"
	"k8s.io/client-go/informers/batch"
	"k8s.io/client-go/informers/certificates"
	"k8s.io/client-go/informers/coordination"
	coreinformers "k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/discovery"
	"k8s.io/client-go/informers/flowcontrol"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/networking"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/rbac"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	storageinformers "k8s.io/client-go/informers/storage"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/server/internal/informers/generated"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// Set makes the factories of a control plane, and knows them all.
type Set struct {
	client  kubernetes.Interface
	storage *chain.Storage
	stopper *stopper.Stopper

	mu        sync.Mutex
	factories []*Factory
}

// New returns a set without factories. The informers end with the goroutines of s.
func New(client kubernetes.Interface, storage *chain.Storage, s *stopper.Stopper) *Set {
	return &Set{client: client, storage: storage, stopper: s}
}

// Factory returns a new factory.
func (s *Set) Factory() *Factory {
	f := &Factory{
		ctx: s.stopper.Context(),
		SharedInformerFactory: clientinformers.NewSharedInformerFactoryWithOptions(s.client,
			10*time.Minute, clientinformers.WithTransform(withoutManagedFields)),
		storage: s.storage,
		direct:  map[directKey]*chain.Informer{},
		started: map[directKey]bool{},
	}
	s.stopper.Wait(f.Shutdown)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.factories = append(s.factories, f)
	return f
}

// Factory makes informers. Those of built-in kinds in their hub version read from etcd, so that the
// server does not have to serve the kinds to itself: its start would wait for the routes, requests
// and watch caches of twenty kinds that most clients never use. All other informers are those of
// the generated factory.
type Factory struct {
	clientinformers.SharedInformerFactory
	storage *chain.Storage
	// ctx is that of the control plane. The informers end with it, no matter who starts them: what
	// has started them may end earlier, and start again.
	ctx context.Context

	mu      sync.Mutex
	direct  map[directKey]*chain.Informer
	started map[directKey]bool
}

// directKey identifies an informer that reads from etcd.
type directKey struct {
	kind reflect.Type
	name string
}

// InformerFor implements informers.SharedInformerFactory.
func (f *Factory) InformerFor(
	example runtime.Object, new internalinterfaces.NewInformerFunc,
) cache.SharedIndexInformer {
	if !core.IsHub(example) {
		return f.SharedInformerFactory.InformerFor(example, new)
	}
	return f.Named(example, "")
}

// For returns the informer of the kind of example, or nil if there is none.
func (f *Factory) For(example runtime.Object) cache.SharedIndexInformer {
	if !core.IsHub(example) {
		return generated.Informers{SharedInformerFactory: f.SharedInformerFactory}.For(example)
	}
	return f.Named(example, "")
}

// Named returns an informer of the objects of a kind that have a certain name.
func (f *Factory) Named(example runtime.Object, name string) cache.SharedIndexInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := directKey{reflect.TypeOf(example), name}
	if f.direct[key] == nil {
		informer := f.storage.Informer(example, name)
		_ = informer.SetTransform(withoutManagedFields) // fails only for one that has started
		f.direct[key] = informer
	}
	return f.direct[key]
}

// withoutManagedFields leaves out what nobody reads, as kube-controller-manager does. An update
// without managed fields leaves those in etcd as they are.
func withoutManagedFields(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

// Start implements informers.SharedInformerFactory.
func (f *Factory) Start(stop <-chan struct{}) {
	f.StartWithContext(wait.ContextForChannel(stop))
}

// StartWithContext implements informers.SharedInformerFactory.
func (f *Factory) StartWithContext(context.Context) {
	f.SharedInformerFactory.StartWithContext(f.ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, informer := range f.direct {
		if !f.started[key] {
			f.started[key] = true
			informer.Start(f.ctx)
		}
	}
}

// Shutdown implements informers.SharedInformerFactory.
func (f *Factory) Shutdown() {
	f.SharedInformerFactory.Shutdown()
	for _, informer := range f.running() {
		informer.Wait()
	}
}

// running returns the informers that read from etcd and have been started.
func (f *Factory) running() map[directKey]*chain.Informer {
	f.mu.Lock()
	defer f.mu.Unlock()
	running := maps.Clone(f.direct)
	maps.DeleteFunc(running, func(key directKey, _ *chain.Informer) bool { return !f.started[key] })
	return running
}

// WaitForCacheSync implements informers.SharedInformerFactory.
func (f *Factory) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	return f.WaitForCacheSyncWithContext(wait.ContextForChannel(stop)).Synced
}

// WaitForCacheSyncWithContext implements informers.SharedInformerFactory. It waits for informers of
// single names too, but does not return them.
func (f *Factory) WaitForCacheSyncWithContext(ctx context.Context) cache.SyncResult {
	result := f.SharedInformerFactory.WaitForCacheSyncWithContext(ctx)
	for key, informer := range f.running() {
		synced := cache.WaitFor(ctx, "", informer.HasSyncedChecker())
		if key.name == "" {
			result.Synced[key.kind] = synced
		}
		if !synced && result.Err == nil {
			result.Err = context.Cause(ctx)
		}
	}
	return result
}

// Until returns a factory whose WaitForCacheSync waits for nothing once the server is ready.
func (f *Factory) Until(ready <-chan struct{}) clientinformers.SharedInformerFactory {
	return serving{f, ready}
}

// serving are the informers for which /readyz waits. Control loops start informers of
// their own once the server is ready. Those must not make it unready, so they do not count.
type serving struct {
	*Factory
	ready <-chan struct{}
}

// WaitForCacheSync implements informers.SharedInformerFactory.
func (f serving) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	select {
	case <-f.ready:
		return nil
	default:
		return f.Factory.WaitForCacheSync(stop)
	}
}

// The groups below are those of which the server has informers. Their factories use InformerFor.

func (f *Factory) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(f, "", nil)
}

func (f *Factory) Apps() apps.Interface { return apps.New(f, "", nil) }

func (f *Factory) Autoscaling() autoscaling.Interface { return autoscaling.New(f, "", nil) }

func (f *Factory) Batch() batch.Interface { return batch.New(f, "", nil) }

func (f *Factory) Certificates() certificates.Interface {
	return certificates.New(f, "", nil)
}

func (f *Factory) Coordination() coordination.Interface {
	return coordination.New(f, "", nil)
}

func (f *Factory) Core() coreinformers.Interface { return coreinformers.New(f, "", nil) }

func (f *Factory) Discovery() discovery.Interface { return discovery.New(f, "", nil) }

func (f *Factory) Flowcontrol() flowcontrol.Interface { return flowcontrol.New(f, "", nil) }

func (f *Factory) Networking() networking.Interface { return networking.New(f, "", nil) }

func (f *Factory) Policy() policy.Interface { return policy.New(f, "", nil) }

func (f *Factory) Rbac() rbac.Interface { return rbac.New(f, "", nil) }

func (f *Factory) Resource() resource.Interface { return resource.New(f, "", nil) }

func (f *Factory) Scheduling() scheduling.Interface { return scheduling.New(f, "", nil) }

func (f *Factory) Storage() storageinformers.Interface {
	return storageinformers.New(f, "", nil)
}
