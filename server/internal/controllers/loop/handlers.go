package loop

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// Handlers are the event handlers of one run of a controller. Informers are shared and outlive the
// run, so the handlers have to be removed at its end.
type Handlers struct {
	remove []func()
	synced []cache.DoneChecker
}

// Add adds a handler to an informer.
func (h *Handlers) Add(
	informer cache.SharedIndexInformer, handler cache.ResourceEventHandler,
) error {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return fmt.Errorf("add event handler: %w", err)
	}
	// fails only for a handler of another informer
	h.remove = append(h.remove, func() { _ = informer.RemoveEventHandler(registration) })
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
func (h *Handlers) Synced() []cache.DoneChecker { return h.synced }

// OnChange returns a handler that calls changed for each change to an object. Old is nil if the
// object is new, and obj is nil if it has been deleted.
func OnChange[T any](changed func(old, obj *T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(nil, obj.(*T)) },
		UpdateFunc: func(old, obj any) { changed(old.(*T), obj.(*T)) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if old, ok := obj.(*T); ok {
				changed(old, nil)
			}
		},
	}
}
