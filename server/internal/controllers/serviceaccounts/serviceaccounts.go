// Package serviceaccounts keeps the service account "default" in every namespace. Pods that name no
// service account use it, so none of them can be created in a namespace without it.
package serviceaccounts

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/pernamespace"
)

// Name is the name of the controller in kube-controller-manager.
const Name = "serviceaccount-controller"

// Account is the name of the service account.
const Account = "default"

// Controller keeps the service account in every namespace.
type Controller struct{ keeper pernamespace.Keeper }

// New returns a controller. The caller starts the informers, of which accounts is one of the
// service accounts named Account.
func New(
	client kubernetes.Interface, namespaces coreinformers.NamespaceInformer,
	accounts cache.SharedIndexInformer,
) *Controller {
	namespaces.Informer() // registers it with the caller's factory
	return &Controller{pernamespace.Keeper{
		Controller: Name,
		Namespaces: namespaces,
		Objects:    accounts,
		Ensure: func(ctx context.Context, namespace string, current any) error {
			if current != nil {
				return nil
			}
			_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx,
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: Account}}, metav1.CreateOptions{})
			return err
		},
	}}
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error { return c.keeper.Run(ctx) }
