package controllers

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// events sends the events of all controllers. Its goroutines start with the first event.
type events struct {
	ctx    context.Context
	client kubernetes.Interface

	mu          sync.Mutex
	broadcaster record.EventBroadcaster
}

// recorder returns a recorder of the events of a component.
func (e *events) recorder(component string) record.EventRecorder {
	return lazyRecorder{sync.OnceValue(func() record.EventRecorder {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.broadcaster == nil {
			e.broadcaster = record.NewBroadcaster(record.WithContext(e.ctx))
			e.broadcaster.StartRecordingToSink(sink{e.ctx, e.client.CoreV1().Events("")})
		}
		return e.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
	})}
}

// sink writes events until its context ends. Then another replica may have the lease, and an event
// that is still on its way is given up, as by a kube-controller-manager that exits.
type sink struct {
	ctx    context.Context
	events typedcorev1.EventInterface
}

// Create implements record.EventSink.
func (s sink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.sent(s.events.CreateWithEventNamespaceWithContext(s.ctx, event))
}

// Update implements record.EventSink.
func (s sink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.sent(s.events.UpdateWithEventNamespaceWithContext(s.ctx, event))
}

// Patch implements record.EventSink.
func (s sink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.sent(s.events.PatchWithEventNamespaceWithContext(s.ctx, event, data))
}

// sent leaves out the error about an event that was given up, which would be logged and tried
// again.
func (s sink) sent(event *corev1.Event, err error) (*corev1.Event, error) {
	if s.ctx.Err() != nil {
		return event, nil
	}
	return event, err
}

// stop ends the goroutines. All controllers have ended before.
func (e *events) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broadcaster != nil {
		e.broadcaster.Shutdown()
	}
}

// lazyRecorder is a recorder that is made with its first event.
type lazyRecorder struct{ made func() record.EventRecorder }

// Event implements record.EventRecorder.
func (r lazyRecorder) Event(object runtime.Object, eventType, reason, message string) {
	r.made().Event(object, eventType, reason, message)
}

// Eventf implements record.EventRecorder.
func (r lazyRecorder) Eventf(
	object runtime.Object, eventType, reason, format string, args ...any,
) {
	r.made().Eventf(object, eventType, reason, format, args...)
}

// AnnotatedEventf implements record.EventRecorder.
func (r lazyRecorder) AnnotatedEventf(
	object runtime.Object, annotations map[string]string,
	eventType, reason, format string, args ...any,
) {
	r.made().AnnotatedEventf(object, annotations, eventType, reason, format, args...)
}
