package looptest

import (
	"context"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/identitylease"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestIdentityLeaseCollected checks that a lease is deleted when it has expired, and not before.
func TestIdentityLeaseCollected(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	client, _ := shared(t)
	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	var running sync.WaitGroup
	running.Go(func() { identitylease.New(client, "apiserver-gone", "127.0.0.1:1").Run(ctx) })
	t.Cleanup(running.Wait)
	get := func(ctx context.Context) (*coordinationv1.Lease, error) {
		return leases.Get(ctx, "apiserver-gone", metav1.GetOptions{})
	}
	workloadtest.Until(t, func(ctx context.Context) string {
		if _, err := get(ctx); err != nil {
			return err.Error()
		}
		return ""
	})
	// A lease expires after an hour.
	renewed := func(ago time.Duration) {
		t.Helper()
		lease := workloadtest.Must(get(ctx))(t)
		lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-ago)))
		workloadtest.Must(leases.Update(ctx, lease, metav1.UpdateOptions{}))(t)
	}
	renewed(59 * time.Minute)
	identitylease.Collect(ctx, client)
	if _, err := get(ctx); err != nil {
		t.Errorf("the lease was deleted before it expired: %v", err)
	}
	renewed(61 * time.Minute)
	identitylease.Collect(ctx, client)
	if _, err := get(ctx); !apierrors.IsNotFound(err) {
		t.Errorf("the expired lease was not deleted: %v", err)
	}
}
