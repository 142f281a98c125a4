package servertest

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Namespace creates a namespace with a name that no other has, and returns the name. When it
// returns, pods can be created in the namespace. When the test ends, the namespace is deleted;
// nothing waits until it is gone.
func Namespace(t TB, c API) string {
	t.Helper()
	var name string
	do(t, c, "namespace", func(ctx context.Context, k *clients) error {
		made, err := k.typed.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}},
			metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil {
			return err
		}
		name = made.Name
		atEnd(t, c, "namespace "+name, func(ctx context.Context, k *clients) error {
			return k.typed.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		})
		return k.awaitServiceAccount(ctx, name)
	})
	return name
}

// awaitServiceAccount waits for the service account "default" of a new namespace, which pods need.
// A control loop creates it. If the namespace "default" has none, nobody runs that loop.
func (k *clients) awaitServiceAccount(ctx context.Context, namespace string) error {
	exists := func(ctx context.Context, namespace string) error {
		accounts := k.typed.CoreV1().ServiceAccounts(namespace)
		_, err := accounts.Get(ctx, "default", metav1.GetOptions{})
		return err
	}
	if err := exists(ctx, metav1.NamespaceDefault); apierrors.IsNotFound(err) {
		return nil
	}
	return until(ctx, func(ctx context.Context) error {
		if err := exists(ctx, namespace); err != nil {
			return fmt.Errorf("service account of namespace %s: %w", namespace, err)
		}
		return nil
	})
}
