package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func (c *Config) systemNamespaces() Part {
	namespaces := corelisters.NewNamespaceLister(
		c.Informers.For(&corev1.Namespace{}).GetIndexer())
	create := func(ctx context.Context, name string) error {
		if _, err := namespaces.Get(name); !apierrors.IsNotFound(err) {
			return err
		}
		_, err := c.Client.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			return nil
		}
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return Part{
		Hook:  "start-system-namespaces-controller",
		First: renewed(namespaceObjects),
		Ensure: func(ctx context.Context) error {
			var errs []error
			for _, name := range systemNamespaces() {
				errs = append(errs, create(ctx, name))
			}
			return errors.Join(errs...)
		},
		Every: namespacesInterval,
		Always: func(key string, _ func(string) bool) bool {
			name, ok := strings.CutPrefix(key, "namespaces/")
			return ok && slices.Contains(systemNamespaces(), name)
		},
	}
}
