package protection

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// protection is how the objects of a kind are protected.
type protection[T metav1.Object] struct {
	resource  schema.GroupVersionResource
	finalizer string
	objects   cache.SharedIndexInformer
	// users are examples of the kinds whose objects may use a protected object. Informers that
	// exist are started. It is empty if the protected object itself says whether it is used.
	users []runtime.Object
	used  func(ctx context.Context, obj T) (bool, error)
}

// controller is the controller for one kind of protected objects.
type controller[T metav1.Object] struct {
	*loop.Controller
	protection[T]
	watching bool // whether the users are watched; used only by the worker

	mu      sync.Mutex
	waiting map[string]struct{} // the keys of objects that are in use
}

func begin[T metav1.Object](
	of func(*loop.Controller) protection[T],
) func(*loop.Controller) loop.Work {
	return func(l *loop.Controller) loop.Work {
		c := &controller[T]{Controller: l, protection: of(l), waiting: map[string]struct{}{}}
		changed := func(obj any) {
			if o := obj.(T); c.held(o) {
				c.Enqueue(loop.Key(o))
			}
		}
		return loop.Work{Sync: c.sync, Watches: []loop.Watch{{
			Informer: c.objects,
			Handler: cache.ResourceEventHandlerFuncs{
				AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) },
			},
		}}}
	}
}

// held reports whether an object is being deleted and has the finalizer.
func (c *controller[T]) held(obj T) bool {
	return obj.GetDeletionTimestamp() != nil && slices.Contains(obj.GetFinalizers(), c.finalizer)
}

func (c *controller[T]) sync(ctx context.Context, key string) (time.Duration, error) {
	found, ok, err := c.objects.GetStore().GetByKey(key)
	if err != nil || !ok || !c.held(found.(T)) {
		c.forget(key)
		return 0, err
	}
	obj := found.(T)
	c.mu.Lock()
	c.waiting[key] = struct{}{}
	c.mu.Unlock()
	used, err := c.used(ctx, obj)
	if err == nil && used && !c.watching {
		if err = c.watchUsers(ctx); err == nil {
			used, err = c.used(ctx, obj) // users deleted before the watch cause no event
		}
	}
	if err != nil || used {
		return 0, err
	}
	if err := c.release(ctx, obj); loop.IgnoreNotFound(err) != nil {
		return 0, err
	}
	c.forget(key)
	return 0, nil
}

func (c *controller[T]) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, key)
}

// watchUsers causes the waiting objects to be checked again whenever an object that may use them
// changes.
func (c *controller[T]) watchUsers(ctx context.Context) error {
	again := func(any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for key := range c.waiting {
			c.Enqueue(key)
		}
	}
	for _, users := range c.users {
		if err := c.Watch(loop.Watch{Informer: c.Informer(users), Handler: cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, obj any) { again(obj) }, DeleteFunc: again,
		}}); err != nil {
			return err
		}
	}
	c.watching = true
	return c.WaitForSync(ctx)
}

// release removes the finalizer, unless the object has changed.
func (c *controller[T]) release(ctx context.Context, obj T) error {
	rest := []string{}
	for _, f := range obj.GetFinalizers() {
		if f != c.finalizer {
			rest = append(rest, f)
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion(), "finalizers": rest,
	}})
	if err != nil {
		return err
	}
	_, err = c.Metadata.Resource(c.resource).Namespace(obj.GetNamespace()).Patch(ctx, obj.GetName(),
		types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
