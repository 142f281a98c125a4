// Package pernamespace keeps an object with a fixed name in every namespace. It is used for the
// service account "default" and for the config map with the root certificates.
package pernamespace

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Keeper keeps an object in every namespace.
type Keeper struct {
	// Objects is an informer of only the objects to keep.
	Objects cache.SharedIndexInformer
	// Ensure creates or repairs the object in a namespace. Current is nil if the object does not
	// exist.
	Ensure func(ctx context.Context, namespace string, current any) error
}

// Work returns the work of a loop that keeps the objects.
func (k Keeper) Work(c *loop.Controller) loop.Work {
	namespaces := c.Informer(&corev1.Namespace{})
	changed := func(obj any) { c.Enqueue(obj.(metav1.Object).GetNamespace()) }
	return loop.Work{
		Watches: []loop.Watch{
			loop.On(namespaces, func(_, n *corev1.Namespace) {
				if n != nil {
					c.Enqueue(n.Name)
				}
			}),
			{Informer: k.Objects, Handler: cache.ResourceEventHandlerFuncs{
				UpdateFunc: func(_, obj any) { changed(obj) },
				DeleteFunc: func(obj any) { changed(loop.Deleted(obj)) },
			}},
		},
		Sync: func(ctx context.Context, namespace string) (time.Duration, error) {
			n := loop.Get[corev1.Namespace](namespaces, namespace)
			if n == nil || n.Status.Phase == corev1.NamespaceTerminating {
				return 0, nil
			}
			return 0, k.sync(ctx, namespace)
		},
	}
}

func (k Keeper) sync(ctx context.Context, namespace string) error {
	var current any
	here, err := k.Objects.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return err
	}
	if len(here) > 0 {
		current = here[0]
	}
	err = k.Ensure(ctx, namespace, current)
	if apierrors.IsAlreadyExists(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	// the namespace is gone; if it was only the object, its deletion causes an event
	return loop.IgnoreNotFound(err)
}
