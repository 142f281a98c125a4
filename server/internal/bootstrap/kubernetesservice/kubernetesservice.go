package kubernetesservice

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

const (
	// Name is the name of the service, its Endpoints and its EndpointSlice.
	Name = "kubernetes"
	// ServicePort is the port of the service.
	ServicePort = 443
	portName    = "https"
	// skipMirror is the label that tells the mirroring controller that the Endpoints already have a
	// slice.
	skipMirror = "endpointslice.kubernetes.io/skip-mirror"
)

// Interval is how often Run reconciles. It is half of kube-apiserver's ten seconds, so that a
// deleted object is restored within that time.
const Interval = 5 * time.Second

// retryInterval is the delay before Run tries again after an error. While the ServiceCIDR is being
// deleted, the service cannot be created.
const retryInterval = time.Second

// Options configure where the service leads.
type Options struct {
	// Address is where other hosts reach this server; see [AdvertiseAddress]. If it is invalid or a
	// loopback address, the service gets no endpoints.
	Address netip.Addr
	// Port is the port that the server listens on.
	Port int32
	// ServiceIP is the cluster IP of the service, which is the first one of the cluster.
	ServiceIP netip.Addr
	// EnsureServiceCIDR creates the ServiceCIDR that contains ServiceIP if it does not exist. It is
	// nil if something else does that.
	EnsureServiceCIDR func(context.Context) error
	// Revisions returns the revisions at which the objects of [Keys] were last changed, from an
	// etcd that this server has to itself. As long as they stay the same there is nothing to
	// reconcile, and an idle server does not keep the code of its API in memory. If it is nil, Run
	// always reconciles.
	Revisions func(ctx context.Context, keys ...string) ([]int64, error)
	// Changes returns a channel that has a value when one of the objects may have changed, until
	// stop is called. If it is nil, Run looks at the objects once in an [Interval].
	Changes func(ctx context.Context, keys ...string) (changed <-chan struct{}, stop func())
	// Leases tell the servers that share an etcd about each other. It is nil for a server that has
	// its etcd to itself.
	Leases Leases
}

// Leases are held by the API servers that are alive.
type Leases interface {
	// Renew creates or renews the lease of an address.
	Renew(ctx context.Context, address string) error
	// Remove deletes the lease of an address.
	Remove(ctx context.Context, address string) error
	// Holders returns the addresses that hold a lease.
	Holders(ctx context.Context) ([]string, error)
}

// The etcd keys of the objects, below the prefix.
const (
	ServiceKey   = "services/specs/default/" + Name
	EndpointsKey = "services/endpoints/default/" + Name
	SliceKey     = "endpointslices/default/" + Name
)

// Keys returns the etcd keys, below the prefix, of the objects that the controller keeps.
func Keys() []string {
	return []string{"servicecidrs/" + Name, ServiceKey, EndpointsKey, SliceKey}
}

// Controller keeps the service and its endpoints up to date.
type Controller struct {
	client  kubernetes.Interface
	options Options
	seen    []int64 // the revisions before the last reconciliation that succeeded
}

// New returns a controller. The client must be one of this server.
func New(client kubernetes.Interface, options Options) *Controller {
	return &Controller{client: client, options: options}
}

// AdvertiseAddress returns the address that kube-apiserver advertises by default: the address that
// it is bound to or, if other hosts cannot use that, the address of the host's interface with the
// default route. It returns an invalid address if there is no such interface.
func AdvertiseAddress(bound net.IP) netip.Addr {
	ip, err := utilnet.ResolveBindAddress(bound)
	if err != nil {
		return netip.Addr{}
	}
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

// Run reconciles after a second, and then every [Interval], or an Interval after a change, until
// ctx ends. Then, if there are leases, it removes this server from the endpoints.
func (c *Controller) Run(ctx context.Context) error {
	// The first time soon, while a program that has just started still has its pages in memory.
	next := time.NewTimer(retryInterval)
	defer next.Stop()
	var changed <-chan struct{}
	if c.options.Changes != nil {
		var stop func()
		changed, stop = c.options.Changes(ctx, Keys()...)
		defer stop()
	}
	pending := true // next is running
	for {
		select {
		case <-ctx.Done():
			if c.options.Leases == nil {
				return nil
			}
			return c.leave(context.WithoutCancel(ctx))
		case <-changed:
			if !pending {
				next.Reset(Interval)
				pending = true
			}
		case <-next.C:
			wait := Interval
			pending = changed == nil
			if err := c.reconcileChanges(ctx); err != nil && ctx.Err() == nil {
				utilruntime.HandleErrorWithContext(ctx, err,
					"Failed to reconcile the service default/kubernetes")
				wait, pending = retryInterval, true
			}
			if pending {
				next.Reset(wait)
			}
		}
	}
}

// reconcileChanges reconciles if an object has changed since the last reconciliation.
func (c *Controller) reconcileChanges(ctx context.Context) error {
	if c.options.Revisions == nil {
		return c.Reconcile(ctx)
	}
	now, err := c.options.Revisions(ctx, Keys()...)
	if err != nil {
		return err
	}
	if slices.Equal(now, c.seen) {
		return nil
	}
	if err := c.Reconcile(ctx); err != nil {
		return err
	}
	c.seen = now
	return nil
}

// leaveTimeout limits how long a stopping server takes to remove itself from the endpoints.
const leaveTimeout = 2 * time.Second

func (c *Controller) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := c.options.Leases.Remove(ctx, c.options.Address.String()); err != nil {
		return err
	}
	// Other servers may be leaving too.
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		holders, err := c.options.Leases.Holders(ctx)
		if err != nil {
			return err
		}
		return c.publish(ctx, holders)
	})
}

// Reconcile brings the service and its endpoints up to date once. It does not write what is already
// correct.
func (c *Controller) Reconcile(ctx context.Context) error {
	if c.options.EnsureServiceCIDR != nil {
		if err := c.options.EnsureServiceCIDR(ctx); err != nil {
			return err
		}
	}
	if err := c.ensureService(ctx); err != nil {
		return fmt.Errorf("service default/kubernetes: %w", err)
	}
	if !c.options.reachable() {
		return nil
	}
	addresses := []string{c.options.Address.String()}
	if c.options.Leases != nil {
		if err := c.options.Leases.Renew(ctx, addresses[0]); err != nil {
			return err
		}
		var err error
		if addresses, err = c.options.Leases.Holders(ctx); err != nil {
			return err
		}
	}
	return c.publish(ctx, addresses)
}

// Accept takes the objects as they are for correct, so that Run does not look at them before they
// change.
func (c *Controller) Accept(ctx context.Context) (err error) {
	if c.options.Revisions != nil {
		c.seen, err = c.options.Revisions(ctx, Keys()...)
	}
	return err
}

func (c *Controller) ensureService(ctx context.Context) error {
	services := c.client.CoreV1().Services(metav1.NamespaceDefault)
	ports := c.options.service().Spec.Ports
	s, err := services.Get(ctx, Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s = c.options.service()
		_, err = services.Create(ctx, s, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) {
			// The namespace does not exist yet, as in a new etcd.
			if err = c.ensureNamespace(ctx); err == nil {
				_, err = services.Create(ctx, s, metav1.CreateOptions{})
			}
		}
		if apierrors.IsAlreadyExists(err) {
			return nil // created concurrently by another server
		}
		return err
	}
	if err != nil {
		return err
	}
	if s.Spec.Type == corev1.ServiceTypeClusterIP && equality.Semantic.DeepEqual(s.Spec.Ports, ports) {
		return nil
	}
	s.Spec.Type, s.Spec.Ports = corev1.ServiceTypeClusterIP, ports
	_, err = services.Update(ctx, s, metav1.UpdateOptions{})
	return err
}

func (c *Controller) ensureNamespace(ctx context.Context) error {
	_, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// publish sets the endpoints to addresses.
func (c *Controller) publish(ctx context.Context, addresses []string) error {
	slices.Sort(addresses)
	if err := c.publishEndpoints(ctx, addresses); err != nil {
		return fmt.Errorf("endpoints of default/kubernetes: %w", err)
	}
	if err := c.publishSlice(ctx, addresses); err != nil {
		return fmt.Errorf("endpoint slice of default/kubernetes: %w", err)
	}
	return nil
}

func (c *Controller) publishEndpoints(ctx context.Context, addresses []string) error {
	endpoints := c.client.CoreV1().Endpoints(metav1.NamespaceDefault)
	wanted := c.options.endpoints(addresses)
	e, err := endpoints.Get(ctx, Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = endpoints.Create(ctx, wanted, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	if err != nil ||
		equality.Semantic.DeepEqual(e.Subsets, wanted.Subsets) && e.Labels[skipMirror] == "true" {
		return err
	}
	e.Subsets = wanted.Subsets
	metav1.SetMetaDataLabel(&e.ObjectMeta, skipMirror, "true")
	_, err = endpoints.Update(ctx, e, metav1.UpdateOptions{})
	return err
}

func (c *Controller) publishSlice(ctx context.Context, addresses []string) error {
	slicesClient := c.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	wanted := c.options.slice(addresses)
	s, err := slicesClient.Get(ctx, Name, metav1.GetOptions{})
	if err == nil && s.AddressType != wanted.AddressType {
		// The address type of a slice is immutable.
		if err = slicesClient.Delete(ctx, Name, metav1.DeleteOptions{}); err == nil ||
			apierrors.IsNotFound(err) {
			_, err = slicesClient.Create(ctx, wanted, metav1.CreateOptions{})
		}
		return err
	}
	if apierrors.IsNotFound(err) {
		_, err = slicesClient.Create(ctx, wanted, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	same := err == nil && equality.Semantic.DeepEqual(s.Endpoints, wanted.Endpoints) &&
		equality.Semantic.DeepEqual(s.Ports, wanted.Ports) &&
		s.Labels[discoveryv1.LabelServiceName] == Name
	if err != nil || same {
		return err
	}
	s.Endpoints, s.Ports = wanted.Endpoints, wanted.Ports
	metav1.SetMetaDataLabel(&s.ObjectMeta, discoveryv1.LabelServiceName, Name)
	_, err = slicesClient.Update(ctx, s, metav1.UpdateOptions{})
	return err
}
