package identitylease_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/controllers/identitylease"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestCollect checks that a lease is deleted when it has expired, and not before.
func TestCollect(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	client := kubernetes.NewForConfigOrDie(servertest.Run(t).RESTConfig())
	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	go identitylease.New(client, "apiserver-gone", "127.0.0.1:1").Run(ctx)
	err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true,
		func(context.Context) (bool, error) {
			_, err := leases.Get(ctx, "apiserver-gone", metav1.GetOptions{})
			return err == nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	lease, err := leases.Get(ctx, "apiserver-gone", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Spec.RenewTime.Time = now.Add(-time.Hour)
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := identitylease.CollectAt(ctx, leases, now.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := leases.Get(ctx, "apiserver-gone", metav1.GetOptions{}); err != nil {
		t.Errorf("the lease was deleted before it expired: %v", err)
	}
	if err := identitylease.CollectAt(ctx, leases, now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := leases.Get(ctx, "apiserver-gone", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the expired lease was not deleted: %v", err)
	}
}
