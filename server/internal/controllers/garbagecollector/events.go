package garbagecollector

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// events sends events. Its goroutines start with the first one.
type events struct {
	mu          sync.Mutex
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
}

func (e *events) recorderOf(r *run) record.EventRecorder {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.recorder == nil {
		e.broadcaster = record.NewBroadcaster(record.WithContext(r.ctx))
		e.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{
			Interface: r.typed.CoreV1().Events(""),
		})
		e.recorder = e.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: Name})
	}
	return e.recorder
}

func (e *events) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broadcaster != nil {
		e.broadcaster.Shutdown()
	}
}

// reportNamespace sends an event if the owner of a reference exists in another namespace.
func (r *run) reportNamespace(
	ctx context.Context, o *object, ref *metav1.OwnerReference, at resource,
) error {
	elsewhere, err := r.isElsewhere(ctx, o, ref, at)
	if err != nil || !elsewhere {
		return err
	}
	r.events.recorderOf(r).Eventf(&corev1.ObjectReference{
		APIVersion: o.kind.GroupVersion().String(),
		Kind:       o.kind.Kind,
		Namespace:  o.namespace,
		Name:       o.name,
		UID:        o.uid,
	}, corev1.EventTypeWarning, "OwnerRefInvalidNamespace",
		"ownerRef %s does not exist in namespace %q",
		fmt.Sprintf("[%s/%s, namespace: %s, name: %s, uid: %s]", ref.APIVersion, ref.Kind, o.namespace,
			ref.Name, ref.UID), o.namespace)
	return nil
}

func (r *run) isElsewhere(
	ctx context.Context, o *object, ref *metav1.OwnerReference, at resource,
) (bool, error) {
	if namespace, ok := r.graph.namespaceOf(ref.UID); ok {
		return namespace != "" && namespace != o.namespace, nil
	}
	keys, err := r.Storage.Namesakes(ctx, at.GroupResource(), ref.Name)
	if err != nil {
		return false, err
	}
	for _, key := range keys {
		m, _, err := r.Storage.Metadata(ctx, key)
		if err != nil {
			return false, err
		}
		if m != nil && m.UID == ref.UID && m.Namespace != o.namespace {
			return true, nil
		}
	}
	return false, nil
}
