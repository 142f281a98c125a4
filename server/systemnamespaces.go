package server

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
)

func systemNamespaces() []string {
	return []string{
		metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic,
		corev1.NamespaceNodeLease,
	}
}

// namespacesInterval is how often the server checks that the system namespaces exist.
// kube-apiserver checks every minute; here the check is cheap, because it reads from an informer's
// cache.
const namespacesInterval = 5 * time.Second

// keepNamespaces ensures the system namespaces, once and then in the background.
func (p *plane) keepNamespaces(
	ctx context.Context, client kubernetes.Interface, namespaces corelisters.NamespaceLister,
) error {
	ensure := func(ctx context.Context) error { return ensureNamespaces(ctx, client) }
	if err := p.unlessFresh(ensure)(ctx); err != nil {
		return err
	}
	p.stopper.Every(namespacesInterval, func(ctx context.Context) {
		createMissing(ctx, client, namespaces)
	})
	return nil
}

func ensureNamespaces(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range systemNamespaces() {
		_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			err = createNamespace(ctx, client, name)
		}
		if err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	return nil
}

func createMissing(
	ctx context.Context, client kubernetes.Interface, namespaces corelisters.NamespaceLister,
) {
	for _, name := range systemNamespaces() {
		if _, err := namespaces.Get(name); !apierrors.IsNotFound(err) {
			continue
		}
		if err := createNamespace(ctx, client, name); err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err,
				"Failed to create a missing system namespace", "namespace", name)
		}
	}
}

func createNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
