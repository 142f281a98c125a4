// Package identitylease keeps the lease by which an API server shows that it is alive (KEP-1965),
// and deletes the leases of API servers that are gone.
package identitylease

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

const (
	// Label and its value mark the leases of API servers.
	Label = "apiserver.kubernetes.io/identity"
	value = "kube-apiserver"

	// addressAnnotation says where other API servers reach the holder.
	addressAnnotation = "kubernetes.io/peer-advertise-address"

	// duration is kube-apiserver's.
	duration = time.Hour
	// renewal is how often the lease is renewed. kube-apiserver renews it every 10 s, to which an
	// idle sandbox would have to wake up.
	renewal = 5 * time.Minute
	// collection is how often expired leases are deleted, as in kube-apiserver.
	collection = time.Hour
)

// Controller keeps the lease of one API server.
type Controller struct {
	leases  coordinationclient.LeaseInterface
	name    string
	holder  string
	address string
}

// New returns a controller of the API server with the given ID. Address is its host and port.
func New(client kubernetes.Interface, id, address string) *Controller {
	return &Controller{
		leases:  client.CoordinationV1().Leases(metav1.NamespaceSystem),
		name:    id,
		holder:  id + "_" + uuid.NewString(),
		address: address,
	}
}

// Ensure creates or renews the lease. API servers on the same machine that share an etcd share the
// lease too, so another one may be faster.
func (c *Controller) Ensure(ctx context.Context) error {
	faster := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	return retry.OnError(retry.DefaultRetry, faster, func() error { return c.ensure(ctx) })
}

func (c *Controller) ensure(ctx context.Context) error {
	lease, err := c.leases.Get(ctx, c.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: c.name}}
		c.hold(lease)
		_, err = c.leases.Create(ctx, lease, metav1.CreateOptions{})
	case err == nil:
		c.hold(lease)
		_, err = c.leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("lease %s: %w", c.name, err)
	}
	return nil
}

func (c *Controller) hold(lease *coordinationv1.Lease) {
	metav1.SetMetaDataLabel(&lease.ObjectMeta, Label, value)
	if host, err := os.Hostname(); err == nil {
		metav1.SetMetaDataLabel(&lease.ObjectMeta, corev1.LabelHostname, host)
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, addressAnnotation, c.address)
	lease.Spec.HolderIdentity = &c.holder
	lease.Spec.LeaseDurationSeconds = new(int32(duration / time.Second))
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
}

// Run renews the lease until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, renewal, false, func(ctx context.Context) (bool, error) {
		if err := c.Ensure(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The lease of the API server was not renewed")
		}
		return false, nil
	})
}

// Collect deletes the leases of API servers that have expired, until ctx ends.
func (c *Controller) Collect(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, collection, false, func(ctx context.Context) (bool, error) {
		if err := c.collect(ctx, time.Now()); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Leases of API servers that are gone were not deleted")
		}
		return false, nil
	})
}

func (c *Controller) collect(ctx context.Context, now time.Time) error {
	leases, err := c.leases.List(ctx, metav1.ListOptions{LabelSelector: Label + "=" + value})
	if err != nil {
		return err
	}
	for _, lease := range leases.Items {
		spec := lease.Spec
		if spec.RenewTime == nil || spec.LeaseDurationSeconds == nil ||
			!spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds)*time.Second).Before(now) {
			continue
		}
		same := metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}
		err := c.leases.Delete(ctx, lease.Name, metav1.DeleteOptions{Preconditions: &same})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}
