package loop

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Watch is an informer and what handles the changes of its objects.
type Watch struct {
	Informer cache.SharedIndexInformer
	// Handler may be nil if nothing follows from a change.
	Handler cache.ResourceEventHandler
	// Indexers are those that the loop needs.
	Indexers cache.Indexers
}

// index adds the indexers that are missing.
func (w Watch) index() error {
	known := w.Informer.GetIndexer().GetIndexers()
	missing := cache.Indexers{}
	for name, f := range w.Indexers {
		if known[name] == nil {
			missing[name] = f
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return w.Informer.AddIndexers(missing)
}

// Handlers are the event handlers of one run of a loop. Informers are shared and outlive the run,
// so the handlers have to be removed at its end.
type Handlers struct {
	remove []func()
	synced []cache.DoneChecker
}

// Add begins a watch. The informer is started by others.
func (h *Handlers) Add(w Watch) error {
	if w.Handler == nil {
		h.synced = append(h.synced, w.Informer.HasSyncedChecker())
		return nil
	}
	registration, err := w.Informer.AddEventHandler(w.Handler)
	if err != nil {
		return fmt.Errorf("add event handler: %w", err)
	}
	// fails only for a handler of another informer
	h.remove = append(h.remove, func() { _ = w.Informer.RemoveEventHandler(registration) })
	h.synced = append(h.synced, registration.HasSyncedChecker())
	return nil
}

// Remove removes the handlers.
func (h *Handlers) Remove() {
	for _, remove := range h.remove {
		remove()
	}
}

// Synced returns what tells that the handlers have seen all objects that existed.
func (h *Handlers) Synced() []cache.DoneChecker { return slices.Clone(h.synced) }

// On returns a watch that calls changed for each change to an object. Old is nil if the object is
// new, and obj is nil if it has been deleted.
func On[T any](informer cache.SharedIndexInformer, changed func(old, obj *T)) Watch {
	return Watch{Informer: informer, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(nil, obj.(*T)) },
		UpdateFunc: func(old, obj any) { changed(old.(*T), obj.(*T)) },
		DeleteFunc: func(obj any) {
			if old, ok := Deleted(obj).(*T); ok {
				changed(old, nil)
			}
		},
	}}
}

// Deleted returns the object that the handler of a deletion gets. If the deletion was found out by
// a list, that is the last state that the informer has seen.
func Deleted(obj any) any {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return obj
}

// Keys returns a watch that calls enqueue with the key of each object that is new, has changed or
// has been deleted.
func Keys(informer cache.SharedIndexInformer, enqueue func(key string)) Watch {
	handle := func(obj any) {
		if object, ok := obj.(metav1.Object); ok {
			enqueue(Key(object))
		}
	}
	return Watch{Informer: informer, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc:    handle,
		UpdateFunc: func(_, obj any) { handle(obj) },
		DeleteFunc: func(obj any) { handle(Deleted(obj)) },
	}}
}

// Key returns the key of an object: its namespace and name.
func Key(object metav1.Object) string { return cache.MetaObjectToName(object).String() }

// Get returns the object with a key, or nil if the informer has none.
func Get[T any](informer cache.SharedIndexInformer, key string) *T {
	obj, _, _ := informer.GetStore().GetByKey(key) // a cache does not fail
	found, _ := obj.(*T)
	return found
}

// InNamespace returns the objects of a namespace. Informers always have the index for that.
func InNamespace[T any](informer cache.SharedIndexInformer, namespace string) []*T {
	found, _ := informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	list := make([]*T, 0, len(found))
	for _, obj := range found {
		list = append(list, obj.(*T))
	}
	return list
}
