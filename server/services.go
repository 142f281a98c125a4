package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"

	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/chain/aggregator"
	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/server/internal/allocation"
	"github.com/kinproc/kinproc/server/internal/controllers/kubernetesservice"
	"github.com/kinproc/kinproc/server/internal/controllers/serviceips"
)

// services holds what the server provides for Services.
type services struct {
	allocator *allocation.Allocator
	// leases are the leases of API servers that share an external etcd. It is nil with the embedded
	// etcd.
	leases *kubernetesservice.StoredLeases
	// repaired is closed when the reservations of addresses and ports have been repaired.
	repaired <-chan struct{}
}

// newServices creates the allocator and repairs its stored allocations.
func newServices(ctx context.Context, p *plane) (*services, error) {
	options, err := allocation.ParseOptions(p.options.ServiceClusterIPRange,
		p.options.ServiceNodePortRange)
	if err != nil {
		return nil, err
	}
	getter, err := core.RESTOptions(p.storage)
	if err != nil {
		return nil, err
	}
	s := &services{}
	options.ReadOnly = p.options.ReadOnly
	if s.allocator, err = allocation.New(ctx, options, getter); err != nil {
		return nil, err
	}
	if p.options.ReadOnly {
		s.repaired = ctx.Done() // nobody waits for it
		return s, nil
	}
	if len(p.options.EtcdServers) == 0 {
		repair := serviceips.New(s.allocator, 0)
		s.repaired = repair.First()
		return s, repair.Run(ctx)
	}
	if s.leases, err = kubernetesservice.NewLeases(getter); err != nil {
		return nil, err
	}
	repair := serviceips.New(s.allocator, serviceips.Grace)
	s.repaired = repair.First()
	p.stopper.Go(func() {
		if err := repair.Run(p.stopper.Context()); err != nil && p.stopper.Context().Err() == nil {
			p.stopper.Fail(err)
		}
	})
	return s, nil
}

// keepKubernetesService ensures the default ServiceCIDR and the service default/kubernetes, once
// and then in the background.
func (p *plane) keepKubernetesService(ctx context.Context, client kubernetes.Interface) error {
	options, err := p.kubernetesService()
	if err != nil {
		return err
	}
	controller := kubernetesservice.New(client, options)
	reconcile := controller.Reconcile
	if p.fresh && options.Leases == nil {
		reconcile = controller.Accept
	}
	if err := reconcile(ctx); err != nil {
		return err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	leave := func() error {
		cancel()
		return <-done
	}
	// The API must still be served when this server leaves the service.
	if !p.stopper.Push("the service default/kubernetes", leave) {
		cancel() // Stop has begun
		return nil
	}
	go func() { done <- controller.Run(run) }()
	return nil
}

// kubernetesService returns where the service default/kubernetes leads.
func (p *plane) kubernetesService() (kubernetesservice.Options, error) {
	address, ok := p.listener.Addr().(*net.TCPAddr)
	if !ok {
		return kubernetesservice.Options{}, fmt.Errorf(
			"a listener on %s has no port for the service default/kubernetes", p.listener.Addr())
	}
	advertised, err := netip.ParseAddr(p.options.AdvertiseAddress)
	if err != nil { // the option is not set
		advertised = kubernetesservice.AdvertiseAddress(address.IP)
	}
	options := kubernetesservice.Options{
		Address:           advertised.Unmap(),
		Port:              int32(address.Port),
		ServiceIP:         p.services.allocator.FirstIP(),
		EnsureServiceCIDR: p.services.allocator.EnsureServiceCIDR,
	}
	if p.services.leases != nil {
		options.Leases = p.services.leases
	} else {
		options.Revisions = p.storage.Revisions
	}
	return options, nil
}

// newResolver returns a resolver for servers outside of this process: extension API servers and
// webhooks.
func (p *plane) newResolver(shared informers.SharedInformerFactory) (*aggregator.Resolver, error) {
	slices, err := proxy.NewEndpointSliceIndexerGetter(shared.Discovery().V1().EndpointSlices())
	if err != nil {
		return nil, fmt.Errorf("resolve services: %w", err)
	}
	return &aggregator.Resolver{
		Services:       shared.Core().V1().Services().Lister(),
		EndpointSlices: slices,
		EndpointsOnly:  p.options.EnableAggregatorRouting,
		Self:           &url.URL{Scheme: "https", Host: p.listener.Addr().String()},
	}, nil
}
