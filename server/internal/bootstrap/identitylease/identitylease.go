// Package identitylease keeps the lease by which an API server shows that it is alive (KEP-1965),
// and deletes the leases of API servers that are gone.
package identitylease

import (
	"context"
	"os"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
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
	// Interval is how often expired leases should be deleted, as in kube-apiserver.
	Interval = time.Hour
)

// New returns a controller that keeps the lease of the API server with the given ID. Address is its
// host and port. API servers on the same machine that share an etcd share the lease too.
func New(client kubernetes.Interface, id, address string) lease.Controller {
	describe := func(l *coordinationv1.Lease) error {
		metav1.SetMetaDataLabel(&l.ObjectMeta, Label, value)
		if host, err := os.Hostname(); err == nil {
			metav1.SetMetaDataLabel(&l.ObjectMeta, corev1.LabelHostname, host)
		}
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, addressAnnotation, address)
		return nil
	}
	return lease.NewController(clock.RealClock{}, client, id+"_"+uuid.NewString(),
		int32(duration/time.Second), nil, renewal, id, metav1.NamespaceSystem, describe)
}

// Collect deletes the leases of API servers that have expired.
func Collect(ctx context.Context, client kubernetes.Interface) {
	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	if err := collect(ctx, leases, time.Now()); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to delete the leases of API servers that are gone")
	}
}

func collect(ctx context.Context, client coordinationclient.LeaseInterface, now time.Time) error {
	leases, err := client.List(ctx, metav1.ListOptions{LabelSelector: Label + "=" + value})
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
		err := client.Delete(ctx, lease.Name, metav1.DeleteOptions{Preconditions: &same})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}
