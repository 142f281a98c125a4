// Package namespaces finishes the deletion of namespaces. It deletes their content, waits for
// finalizers and graceful deletions, reports in the namespace's conditions what it waits for, and
// finalizes the namespace once it is empty.
//
// Pods are deleted first (KEP-5080), then everything else that discovery lists.
// kube-controller-manager waits five seconds before that, because of the caches of other API
// servers. This controller starts at once, because admission here reads the same informer. Pods
// that remain after their grace period are deleted for good, because there may be no kubelet to do
// it.
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

// Name is the name of the controller in kube-controller-manager.
const Name = "namespace-controller"

// workers is the number of namespaces that are emptied concurrently. A test suite deletes many at
// once.
const workers = 4

// Controller is the control loop.
type Controller struct {
	client     kubernetes.Interface
	metadata   metadata.Interface
	namespaces coreinformers.NamespaceInformer
}

// New returns a controller. The caller starts the informer of namespaces.
func New(
	client kubernetes.Interface, metadata metadata.Interface,
	namespaces coreinformers.NamespaceInformer,
) *Controller {
	namespaces.Informer() // registers it with the caller's factory
	return &Controller{client: client, metadata: metadata, namespaces: namespaces}
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
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
			// Ignore updates of conditions, which this controller makes itself.
			if waits(is) && (!waits(was) || !slices.Equal(was.Spec.Finalizers, is.Spec.Finalizers) ||
				was.ResourceVersion == is.ResourceVersion) {
				queue.Soon(is.Name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	// fails only for a handler of another informer
	defer func() { _ = informer.RemoveEventHandler(registration) }()
	return queue.Run(ctx, workers, c.sync, registration.HasSyncedChecker())
}

// waits reports whether a namespace has to be emptied.
func waits(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil &&
		slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
}

// sync empties a namespace and finalizes it, or returns how long to wait for the remaining content.
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
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool {
		return f == corev1.FinalizerKubernetes
	})
	_, err = c.client.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
	return 0, ignoreGone(err)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
