package admission

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/chain"
)

// Some plugins remember what they made of objects. When a control plane is reset, they must forget
// it before the next request:
//
//   - The webhook plugins collect the configurations when the handlers of their informers have run.
//     The informers of [Deferred.Track] tell when that is.
//   - The policy plugins compile policies once a second. They are replaced by new plugins; see
//     replacer.

// Track returns a factory like f, whose informers of webhooks tell Deferred what their handlers
// have handled.
func (d *Deferred) Track(f informers.SharedInformerFactory) informers.SharedInformerFactory {
	return tracked{f, d}
}

type tracked struct {
	informers.SharedInformerFactory
	deferred *Deferred
}

func (t tracked) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(t, metav1.NamespaceAll, nil)
}

func (t tracked) InformerFor(
	obj runtime.Object, newFunc internalinterfaces.NewInformerFunc,
) cache.SharedIndexInformer {
	informer := t.SharedInformerFactory.InformerFor(obj, newFunc)
	switch obj.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		return trackedInformer{informer, admissionKind("ValidatingWebhookConfiguration"), t.deferred}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		return trackedInformer{informer, admissionKind("MutatingWebhookConfiguration"), t.deferred}
	}
	return informer // its plugins are replaced
}

type trackedInformer struct {
	cache.SharedIndexInformer
	kind     schema.GroupKind
	deferred *Deferred
}

// AddEventHandler implements cache.SharedInformer.
func (i trackedInformer) AddEventHandler(
	h cache.ResourceEventHandler,
) (cache.ResourceEventHandlerRegistration, error) {
	t := &trackedHandler{next: h, kind: i.kind, handled: map[string]string{}}
	i.deferred.mu.Lock()
	i.deferred.handlers = append(i.deferred.handlers, t)
	i.deferred.mu.Unlock()
	return i.SharedIndexInformer.AddEventHandler(t)
}

// trackedHandler remembers the resource versions that the next handler has handled, by name.
type trackedHandler struct {
	next cache.ResourceEventHandler
	kind schema.GroupKind

	mu      sync.Mutex
	handled map[string]string
}

func (h *trackedHandler) note(obj any) {
	if o, ok := obj.(metav1.Object); ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.handled[cache.MetaObjectToName(o).String()] = o.GetResourceVersion()
	}
}

func (h *trackedHandler) OnAdd(obj any, initial bool) {
	h.next.OnAdd(obj, initial)
	h.note(obj)
}

func (h *trackedHandler) OnUpdate(old, obj any) {
	h.next.OnUpdate(old, obj)
	h.note(obj)
}

func (h *trackedHandler) OnDelete(obj any) {
	h.next.OnDelete(obj)
	if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.handled, name.String())
	}
}

// has reports whether the handler has handled a revision of an object, or its deletion then.
func (h *trackedHandler) has(c chain.Change) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	version, exists := h.handled[c.Name]
	if c.After == nil {
		return !exists
	}
	return version == strconv.FormatInt(c.Revision, 10)
}

const pollInterval = 200 * time.Microsecond

// CatchUp waits until no plugin remembers the state before the changes. The stores of the shared
// informers must have them, and no request may be in admission.
func (d *Deferred) CatchUp(ctx context.Context, changes chain.Changes) error {
	d.mu.Lock()
	handlers := d.handlers
	d.mu.Unlock()
	for _, h := range handlers {
		for _, c := range changes.Of(h.kind) {
			if err := wait.PollUntilContextCancel(ctx, pollInterval, true,
				func(context.Context) (bool, error) { return h.has(c), nil }); err != nil {
				return fmt.Errorf("admission: %s: %w", h.kind, context.Cause(ctx))
			}
		}
	}
	for _, p := range d.replacers {
		for _, kind := range p.remembers() {
			if len(changes.Of(kind)) == 0 {
				continue
			}
			if err := p.replace(ctx); err != nil {
				return fmt.Errorf("admission: %s: %w", kind, err)
			}
			break
		}
	}
	return nil
}

// replacer is a plugin that can be replaced by a new one.
type replacer interface {
	// remembers returns the kinds of objects that the plugin remembers.
	remembers() []schema.GroupKind
	// replace makes a new plugin that takes the place of this one. It returns when the new one is
	// ready.
	replace(ctx context.Context) error
}

func admissionKind(name string) schema.GroupKind {
	return admissionregistrationv1.SchemeGroupVersion.WithKind(name).GroupKind()
}
