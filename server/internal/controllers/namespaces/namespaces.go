// Package namespaces makes deleted namespaces go away: it deletes what is in them, waits for finalizers and graceful deletions, says in
// the namespace's conditions what it waits for, and finalizes the namespace once it is empty.
//
// Pods go first (KEP-5080), everything else that discovery lists follows. Unlike kube-controller-manager, which lets five seconds pass
// for the sake of other API servers' caches, it begins at once: here admission reads the same informer. And pods that are left when their
// grace period is over are deleted for good, for there may be no kubelet that would do it.
package namespaces

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is kube-controller-manager's name of the loop.
const Name = "namespace-controller"

// workers is how many namespaces are emptied at a time; a test suite deletes many at once.
const workers = 4

// Controller is the control loop.
type Controller struct {
	client     kubernetes.Interface
	metadata   metadata.Interface
	namespaces coreinformers.NamespaceInformer
}

// New makes a controller. The caller starts the informer of namespaces.
func New(client kubernetes.Interface, metadata metadata.Interface, namespaces coreinformers.NamespaceInformer) *Controller {
	namespaces.Informer() // so that the caller's factory knows of it
	return &Controller{client: client, metadata: metadata, namespaces: namespaces}
}

// Run works until ctx ends, and returns when nothing of the controller runs any more.
func (c *Controller) Run(ctx context.Context) error {
	queue := loop.New(Name)
	informer := c.namespaces.Informer()
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if ns := obj.(*corev1.Namespace); waits(ns) {
				queue.Soon(ns.Name)
			}
		},
		UpdateFunc: func(old, obj any) {
			was, is := old.(*corev1.Namespace), obj.(*corev1.Namespace)
			// The conditions are this controller's own doing.
			if waits(is) && (!waits(was) || !slices.Equal(was.Spec.Finalizers, is.Spec.Finalizers) || was.ResourceVersion == is.ResourceVersion) {
				queue.Soon(is.Name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }() // fails only for a handler that is not ours
	return queue.Run(ctx, workers, c.sync, registration.HasSyncedChecker())
}

// waits reports whether a namespace is to be emptied.
func waits(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil && slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
}

// sync empties a namespace and finalizes it, or says how long to wait for what remains.
func (c *Controller) sync(ctx context.Context, name string) (time.Duration, error) {
	ns, err := c.namespaces.Lister().Get(name)
	if apierrors.IsNotFound(err) || err == nil && !waits(ns) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	found := c.empty(ctx, name)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	ns = ns.DeepCopy()
	ns.Status.Phase = corev1.NamespaceTerminating
	if found.report(&ns.Status) {
		updated, err := c.client.CoreV1().Namespaces().UpdateStatus(ctx, ns, metav1.UpdateOptions{})
		if err != nil {
			return 0, ignoreGone(err)
		}
		ns = updated
	}
	if err := found.err(); err != nil {
		return 0, err
	}
	if wait := found.wait(); wait > 0 {
		return wait, nil
	}
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err = c.client.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
	return 0, ignoreGone(err)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
