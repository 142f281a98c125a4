// Package pernamespace keeps an object with a fixed name in every namespace. It is used for the
// service account "default" and for the config map with the root certificates.
package pernamespace

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// workers is the number of namespaces that are processed concurrently.
const workers = 2

// Keeper is a controller. All fields are required.
type Keeper struct {
	// Controller is the name of the controller.
	Controller string
	Namespaces coreinformers.NamespaceInformer
	// Objects is an informer of only the objects to keep. The caller starts it.
	Objects cache.SharedIndexInformer
	// Ensure creates or repairs the object in a namespace. Current is nil if the object does not
	// exist.
	Ensure func(ctx context.Context, namespace string, current any) error
}

// Run keeps the objects until ctx ends. It returns when all goroutines of the keeper have ended.
func (k *Keeper) Run(ctx context.Context) error {
	queue := loop.New(k.Controller)
	var handlers loop.Handlers
	defer handlers.Remove()
	if err := errors.Join(
		handlers.Add(k.Namespaces.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { add(queue, obj, cache.MetaNamespaceKeyFunc) },
			UpdateFunc: func(_, obj any) { add(queue, obj, cache.MetaNamespaceKeyFunc) },
		}),
		handlers.Add(k.Objects, cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, obj any) { add(queue, obj, namespaceOf) },
			DeleteFunc: func(obj any) { add(queue, obj, namespaceOf) },
		}),
	); err != nil {
		return fmt.Errorf("%s: %w", k.Controller, err)
	}
	return queue.Run(ctx, workers, k.sync, handlers.Synced()...)
}

func add(queue *loop.Queue, obj any, keyOf cache.KeyFunc) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if key, err := keyOf(obj); err == nil { // objects from informers always have metadata
		queue.Soon(key)
	}
}

func namespaceOf(obj any) (string, error) {
	o, ok := obj.(metav1.Object)
	if !ok {
		return "", fmt.Errorf("%T has no metadata", obj)
	}
	return o.GetNamespace(), nil
}

func (k *Keeper) sync(ctx context.Context, namespace string) (time.Duration, error) {
	ns, err := k.Namespaces.Lister().Get(namespace)
	if apierrors.IsNotFound(err) || err == nil && ns.Status.Phase == corev1.NamespaceTerminating {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var current any
	here, err := k.Objects.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return 0, err
	}
	if len(here) > 0 {
		current = here[0]
	}
	err = k.Ensure(ctx, namespace, current)
	if apierrors.IsAlreadyExists(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return 0, nil
	}
	// the namespace is gone; if it was only the object, its deletion causes an event
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	return 0, err
}
