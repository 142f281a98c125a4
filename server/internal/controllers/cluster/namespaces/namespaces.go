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
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "namespace-controller"

// Loop is the loop of namespaces that are deleted.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "namespace",
		Purpose: "empties namespaces that are being deleted",
		Workers: 4, // a test suite deletes many at once
		Begin:   begin,
	}
}

type controller struct {
	*loop.Controller
	namespaces cache.SharedIndexInformer
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{l, l.Informer(&corev1.Namespace{})}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.On(c.namespaces, func(old, n *corev1.Namespace) {
			// Conditions are changed by this loop itself.
			if n != nil && waits(n) && (old == nil || !waits(old) ||
				!slices.Equal(old.Spec.Finalizers, n.Spec.Finalizers) ||
				old.ResourceVersion == n.ResourceVersion) {
				c.Enqueue(n.Name)
			}
		}),
	}}
}

// waits reports whether a namespace has to be emptied.
func waits(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil &&
		slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
}

// sync empties a namespace and finalizes it, or returns how long to wait for the remaining content.
func (c *controller) sync(ctx context.Context, name string) (time.Duration, error) {
	ns := loop.Get[corev1.Namespace](c.namespaces, name)
	if ns == nil || !waits(ns) {
		return 0, nil
	}
	found, err := c.emptyInTime(ctx, name)
	if err != nil {
		return 0, err
	}
	ns = ns.DeepCopy()
	ns.Status.Phase = corev1.NamespaceTerminating
	if found.report(&ns.Status) {
		updated, err := c.Client.CoreV1().Namespaces().UpdateStatus(ctx, ns, metav1.UpdateOptions{})
		if err != nil {
			return 0, loop.IgnoreNotFound(err)
		}
		ns = updated
	}
	if err := found.err(); err != nil {
		return 0, err
	}
	if wait := found.wait(); wait > 0 {
		return 0, loop.Poll(wait)
	}
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool {
		return f == corev1.FinalizerKubernetes
	})
	_, err = c.Client.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
	return 0, loop.IgnoreNotFound(err)
}
