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
			e.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{
				Interface: e.client.CoreV1().Events(""),
			})
		}
		return e.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
	})}
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
