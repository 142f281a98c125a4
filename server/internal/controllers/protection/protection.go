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

// Dependencies are what the controllers work with.
type Dependencies struct {
	Client   kubernetes.Interface
	Metadata metadata.Interface
	// Informers is a factory that the controllers start themselves, as far as they need it.
	Informers informers.SharedInformerFactory
	// Appeared waits until there is an object of a resource. If nil, there may always be some.
	Appeared func(ctx context.Context, resource schema.GroupResource) error
}

// Controller is the control loop for one kind of protected objects.
type Controller[T metav1.Object] struct {
	Dependencies
	name      string
	resource  schema.GroupVersionResource
	finalizer string
	objects   func(informers.SharedInformerFactory) cache.SharedIndexInformer
	// users are the informers of what may use an object; none if the object itself says whether it is used.
	users []func(informers.SharedInformerFactory) cache.SharedIndexInformer
	used  func(ctx context.Context, obj T) (bool, error)
}

// Run works until ctx ends, and returns when nothing of the controller runs any more.
func (c *Controller[T]) Run(ctx context.Context) error {
	if c.Appeared != nil {
		if err := c.Appeared(ctx, c.resource.GroupResource()); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	r := &run[T]{Controller: c, queue: loop.New(c.name), waiting: map[string]struct{}{}}
	defer r.stop()
	r.store = c.objects(c.Informers).GetStore()
	added := func(obj any) {
		if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil && c.held(obj.(T)) { // all that informers hand out has metadata
			r.queue.Soon(key)
		}
	}
	synced, err := r.watch(c.objects(c.Informers), cache.ResourceEventHandlerFuncs{AddFunc: added, UpdateFunc: func(_, obj any) { added(obj) }})
	if err != nil {
		return err
	}
	c.Informers.StartWithContext(ctx)
	return r.queue.Run(ctx, 1, r.sync, synced)
}

// held reports whether nothing but the finalizer may keep an object.
func (c *Controller[T]) held(obj T) bool {
	return obj.GetDeletionTimestamp() != nil && slices.Contains(obj.GetFinalizers(), c.finalizer)
}

// run is what a run of a controller keeps.
type run[T metav1.Object] struct {
	*Controller[T]
	queue    *loop.Queue
	store    cache.Store
	watching bool     // whether the users are watched; the worker's own
	stops    []func() // take the event handlers away; the worker's own

	mu      sync.Mutex
	waiting map[string]struct{} // the keys of objects that are used
}

func (r *run[T]) stop() {
	for _, stop := range r.stops {
		stop()
	}
}

func (r *run[T]) watch(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) (cache.DoneChecker, error) {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	r.stops = append(r.stops, func() { _ = informer.RemoveEventHandler(registration) }) // fails only for a handler that is not ours
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
			used, err = r.used(ctx, obj) // what went before it was watched goes without notice
		}
	}
	if err != nil || used {
		return 0, err
	}
	if err := r.release(ctx, obj); apierrors.IsConflict(err) {
		return time.Second, nil // the change comes as an event
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

// watchUsers looks at the waiting objects again whenever something that may have used them changes.
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
		one, err := r.watch(users(r.Informers), cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) { again(obj) }, DeleteFunc: again})
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

// release takes the finalizer away, unless the object has changed.
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
	_, err = r.Metadata.Resource(r.resource).Namespace(obj.GetNamespace()).Patch(ctx, obj.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
