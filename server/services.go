package server

import (
	"context"
	"fmt"
	"net"
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

// services is what the API services of kind Service need of the server.
type services struct {
	allocator *allocation.Allocator
	// leases are those of API servers that share an etcd; nil for an embedded one.
	leases *kubernetesservice.StoredLeases
	// leave ends what keeps the service default/kubernetes, and the endpoint of this server where servers share an etcd, and waits for
	// that; nil if nothing keeps it. It needs the server's mutex.
	leave func()
}

// newAllocator makes the allocator that connectAllocator connects, once the kinds are known.
func (s *Server) newAllocator() error {
	options, err := allocation.ParseOptions(s.options.ServiceClusterIPRange, s.options.ServiceNodePortRange)
	if err != nil {
		return err
	}
	s.services.allocator, err = allocation.New(options)
	return err
}

func (s *Server) connectAllocator() error {
	getter, err := core.RESTOptions(s.backend)
	if err != nil {
		return err
	}
	if len(s.options.EtcdServers) > 0 {
		if s.services.leases, err = kubernetesservice.NewLeases(getter); err != nil {
			return err
		}
	}
	return s.services.allocator.Connect(getter)
}

// prepareAllocator is to be called before anything is served.
func (s *Server) prepareAllocator(ctx, runCtx context.Context) error {
	if err := s.services.allocator.Bootstrap(ctx); err != nil {
		return err
	}
	if s.services.leases == nil {
		return serviceips.New(s.services.allocator, 0).Run(ctx)
	}
	repair := serviceips.New(s.services.allocator, serviceips.Grace)
	s.run(func() {
		if err := repair.Run(runCtx); err != nil && runCtx.Err() == nil {
			s.fail(err)
		}
	})
	return nil
}

// keepKubernetesService ensures the default ServiceCIDR and the service default/kubernetes, once and then in the background.
func (s *Server) keepKubernetesService(ctx context.Context, client kubernetes.Interface) error {
	address, ok := s.listener.Addr().(*net.TCPAddr)
	if !ok {
		return fmt.Errorf("a listener on %s has no port for the service default/kubernetes", s.listener.Addr())
	}
	options := kubernetesservice.Options{
		Address:           kubernetesservice.AdvertiseAddress(address.IP),
		Port:              int32(address.Port),
		ServiceIP:         s.services.allocator.FirstIP(),
		EnsureServiceCIDR: s.services.allocator.Bootstrap,
	}
	if s.services.leases != nil {
		options.Leases = s.services.leases
	}
	controller := kubernetesservice.New(client, options)
	if err := controller.Reconcile(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil // nobody would end it
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- controller.Run(run) }()
	s.services.leave = func() {
		cancel()
		<-done
	}
	return nil
}

// stopServices leaves the service default/kubernetes, for which the API must still be served.
func (s *Server) stopServices() {
	s.mu.Lock()
	leave := s.services.leave
	s.mu.Unlock()
	if leave != nil {
		leave()
	}
}

// newResolver finds the servers that others run: extension API servers and webhooks.
func (s *Server) newResolver(shared informers.SharedInformerFactory) (*aggregator.Resolver, error) {
	slices, err := proxy.NewEndpointSliceIndexerGetter(shared.Discovery().V1().EndpointSlices())
	if err != nil {
		return nil, fmt.Errorf("resolve services: %w", err)
	}
	return &aggregator.Resolver{
		Services:       shared.Core().V1().Services().Lister(),
		EndpointSlices: slices,
		EndpointsOnly:  s.options.EnableAggregatorRouting,
		Self:           &url.URL{Scheme: "https", Host: s.listener.Addr().String()},
	}, nil
}
