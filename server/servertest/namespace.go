package servertest

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kinproc/kinproc/server/internal/install"
)

// Namespace creates a namespace with a name that no other has, and returns the name. When it
// returns, pods can be created in the namespace. When the test ends, the namespace is deleted;
// nothing waits until it is gone.
func Namespace(t TB, c API) string {
	t.Helper()
	var name string
	do(t, c, "namespace", func(ctx context.Context, k *clients) error {
		made, err := k.CreateIn(ctx, k.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource(
			"namespaces")), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"generateName": "test-"},
		}})
		if err != nil {
			return err
		}
		name = made.GetName()
		deleteAtEnd(t, made)
		return k.awaitServiceAccount(ctx, name)
	})
	return name
}

// awaitServiceAccount waits for the service account "default" of a new namespace, which pods need.
// A control loop creates it. If the namespace "default" has none, nobody runs that loop.
func (k *clients) awaitServiceAccount(ctx context.Context, namespace string) error {
	_, err := k.typed.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default",
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	accounts := k.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts"))
	err = install.Await(ctx, accounts.Namespace(namespace), "default",
		func(*unstructured.Unstructured) error { return nil })
	if err != nil {
		return fmt.Errorf("service account of namespace %s: %w", namespace, err)
	}
	return nil
}
