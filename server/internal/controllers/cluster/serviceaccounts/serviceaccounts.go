// Package serviceaccounts keeps the service account "default" in every namespace. Pods that name no
// service account use it, so none of them can be created in a namespace without it.
package serviceaccounts

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/cluster/pernamespace"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "serviceaccount-controller"

// Account is the name of the service account.
const Account = "default"

// Loop is the loop that keeps the service account in every namespace.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "serviceaccount",
		Purpose: `creates the ServiceAccount "default" in each namespace`,
		Workers: 2, Begin: begin,
	}
}

func begin(c *loop.Controller) loop.Work {
	return pernamespace.Keeper{
		Objects: c.Named(&corev1.ServiceAccount{}, Account),
		Ensure: func(ctx context.Context, namespace string, current any) error {
			if current != nil {
				return nil
			}
			_, err := c.Client.CoreV1().ServiceAccounts(namespace).Create(ctx,
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: Account}}, metav1.CreateOptions{})
			return err
		},
	}.Work(c)
}
