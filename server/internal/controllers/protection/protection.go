package protection

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Dependencies are what the controllers need.
type Dependencies struct {
	Client   kubernetes.Interface
	Metadata metadata.Interface
	// Informers is a factory. The controllers start the informers that they need.
	Informers informers.SharedInformerFactory
}

// Controller is the controller for one kind of protected objects.
type Controller[T metav1.Object] struct {
	Dependencies
	name      string
	resource  schema.GroupVersionResource
	finalizer string
	objects   func(informers.SharedInformerFactory) cache.SharedIndexInformer
	// users are the informers of the objects that may use a protected object. It is empty if the
	// protected object itself says whether it is used.
	users []func(informers.SharedInformerFactory) cache.SharedIndexInformer
	used  func(ctx context.Context, obj T) (bool, error)
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller[T]) Run(ctx context.Context) error {
	r := &run[T]{Controller: c, queue: loop.New(c.name), waiting: map[string]struct{}{}}
	defer r.stop()
	r.store = c.objects(c.Informers).GetStore()
	added := func(obj any) {
		// objects from informers always have metadata
		if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil && c.held(obj.(T)) {
			r.queue.Soon(key)
		}
	}
	synced, err := r.watch(c.objects(c.Informers),
		cache.ResourceEventHandlerFuncs{AddFunc: added, UpdateFunc: func(_, obj any) { added(obj) }})
	if err != nil {
		return err
	}
	c.Informers.StartWithContext(ctx)
	return r.queue.Run(ctx, 1, r.sync, synced)
}

// held reports whether an object is being deleted and has the finalizer.
func (c *Controller[T]) held(obj T) bool {
	return obj.GetDeletionTimestamp() != nil && slices.Contains(obj.GetFinalizers(), c.finalizer)
}

// run is the state of one call of Run.
type run[T metav1.Object] struct {
	*Controller[T]
	queue    *loop.Queue
	store    cache.Store
	watching bool     // whether the users are watched; used only by the worker
	stops    []func() // remove the event handlers; used only by the worker

	mu      sync.Mutex
	waiting map[string]struct{} // the keys of objects that are in use
}

func (r *run[T]) stop() {
	for _, stop := range r.stops {
		stop()
	}
}

func (r *run[T]) watch(
	informer cache.SharedIndexInformer, handler cache.ResourceEventHandler,
) (cache.DoneChecker, error) {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	// fails only for a handler of another informer
	r.stops = append(r.stops, func() { _ = informer.RemoveEventHandler(registration) })
	return registration.HasSyncedChecker(), nil
}

func (r *run[T]) sync(ctx context.Context, key string) (time.Duration, error) {
	found, ok, err := r.store.GetByKey(key)
	if err != nil || !ok || !r.held(found.(T)) {
		r.forget(key)
		return 0, err
	}
	obj := found.(T)
	r.mu.Lock()
	r.waiting[key] = struct{}{}
	r.mu.Unlock()
	used, err := r.used(ctx, obj)
	if err == nil && used && !r.watching {
		if err = r.watchUsers(ctx); err == nil {
			used, err = r.used(ctx, obj) // users deleted before the watch cause no event
		}
	}
	if err != nil || used {
		return 0, err
	}
	if err := r.release(ctx, obj); apierrors.IsConflict(err) {
		return time.Second, nil // the change causes an event
	} else if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	r.forget(key)
	return 0, nil
}

func (r *run[T]) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, key)
}

// watchUsers causes the waiting objects to be checked again whenever an object that may use them
// changes.
func (r *run[T]) watchUsers(ctx context.Context) error {
	again := func(any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for key := range r.waiting {
			r.queue.Soon(key)
		}
	}
	var synced []cache.DoneChecker
	for _, users := range r.users {
		one, err := r.watch(users(r.Informers),
			cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) { again(obj) }, DeleteFunc: again})
		if err != nil {
			return err
		}
		synced = append(synced, one)
	}
	r.watching = true
	r.Informers.StartWithContext(ctx)
	cache.WaitFor(ctx, "", synced...)
	return ctx.Err()
}

// release removes the finalizer, unless the object has changed.
func (r *run[T]) release(ctx context.Context, obj T) error {
	rest := []string{}
	for _, f := range obj.GetFinalizers() {
		if f != r.finalizer {
			rest = append(rest, f)
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion(), "finalizers": rest,
	}})
	if err != nil {
		return err
	}
	_, err = r.Metadata.Resource(r.resource).Namespace(obj.GetNamespace()).Patch(ctx, obj.GetName(),
		types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
