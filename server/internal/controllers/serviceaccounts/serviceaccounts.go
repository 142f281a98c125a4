// Package serviceaccounts keeps the service account "default" in every namespace: it is what pods run as that name no other, so no pod
// can be created in a namespace without it.
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

// Name is kube-controller-manager's name of the loop.
const Name = "serviceaccount-controller"

const account = "default"

// Controller is the control loop.
type Controller struct{ keeper pernamespace.Keeper }

// New makes a controller. The caller starts the informer of namespaces.
func New(client kubernetes.Interface, namespaces coreinformers.NamespaceInformer) *Controller {
	namespaces.Informer() // so that the caller's factory knows of it
	return &Controller{pernamespace.Keeper{
		Controller: Name,
		Namespaces: namespaces,
		Objects: coreinformers.NewFilteredServiceAccountInformer(client, metav1.NamespaceAll, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, pernamespace.Named(account)),
		Ensure: func(ctx context.Context, namespace string, current any) error {
			if current != nil {
				return nil
			}
			_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx,
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
			return err
		},
	}}
}

// Run works until ctx ends, and returns when nothing of the controller runs any more.
func (c *Controller) Run(ctx context.Context) error { return c.keeper.Run(ctx) }
