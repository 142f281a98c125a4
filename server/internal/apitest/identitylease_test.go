package apitest

import (
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/bootstrap/identitylease"
)

// TestIdentityLeaseCollected checks that a lease is deleted when it has expired, and not before.
func TestIdentityLeaseCollected(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _ := shared(t)
	client := as(t, s, "tester", "system:masters")
	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	var running sync.WaitGroup
	running.Go(func() { identitylease.New(client, "apiserver-gone", "127.0.0.1:1").Run(ctx) })
	t.Cleanup(running.Wait)
	get := func() (*coordinationv1.Lease, error) {
		return leases.Get(ctx, "apiserver-gone", metav1.GetOptions{})
	}
	eventually(t, "the lease exists", func() error {
		_, err := get()
		return err
	})
	// A lease expires after an hour.
	renew := func(ago time.Duration) {
		t.Helper()
		lease := must(get())(t)
		lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-ago)))
		must(leases.Update(ctx, lease, metav1.UpdateOptions{}))(t)
	}
	renew(59 * time.Minute)
	identitylease.Collect(ctx, client)
	if _, err := get(); err != nil {
		t.Errorf("the lease was deleted before it expired: %v", err)
	}
	renew(61 * time.Minute)
	identitylease.Collect(ctx, client)
	if _, err := get(); !apierrors.IsNotFound(err) {
		t.Errorf("the expired lease was not deleted: %v", err)
	}
}
