package bootstrap

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/server/internal/allocation"
	"github.com/kinproc/kinproc/server/internal/bootstrap/kubernetesservice"
	"github.com/kinproc/kinproc/server/internal/bootstrap/serviceips"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// ServicesConfig configures the addresses and ports of services.
type ServicesConfig struct {
	ClusterIPRange, NodePortRange string
	Storage                       *chain.Storage
	// SharesEtcd is true if other control planes may use the same etcd.
	SharesEtcd bool
	ReadOnly   bool
}

// Services holds what the server provides for Services.
type Services struct {
	Allocator *allocation.Allocator
	// leases are the leases of API servers that share an external etcd. It is nil with the embedded
	// etcd.
	leases *kubernetesservice.StoredLeases
	// repaired is closed when the reservations of addresses and ports have been repaired.
	repaired <-chan struct{}
}

// OpenServices returns the allocator, and repairs its stored allocations.
func OpenServices(ctx context.Context, c ServicesConfig, s *stopper.Stopper) (*Services, error) {
	options, err := allocation.ParseOptions(c.ClusterIPRange, c.NodePortRange)
	if err != nil {
		return nil, err
	}
	getter, err := core.RESTOptions(c.Storage)
	if err != nil {
		return nil, err
	}
	all := &Services{}
	options.ReadOnly = c.ReadOnly
	if all.Allocator, err = allocation.New(ctx, options, getter); err != nil {
		return nil, err
	}
	if c.ReadOnly {
		all.repaired = ctx.Done() // nobody waits for it
		return all, nil
	}
	if !c.SharesEtcd {
		repair := serviceips.New(all.Allocator, 0)
		all.repaired = repair.First()
		return all, repair.Run(ctx)
	}
	if all.leases, err = kubernetesservice.NewLeases(getter); err != nil {
		return nil, err
	}
	repair := serviceips.New(all.Allocator, serviceips.Grace)
	all.repaired = repair.First()
	s.Go(func() {
		if err := repair.Run(s.Context()); err != nil && s.Context().Err() == nil {
			s.Fail(err)
		}
	})
	return all, nil
}

// awaitRepair waits for the repair, or until ctx ends. It never fails.
func (s *Services) awaitRepair(ctx context.Context) error {
	select {
	case <-s.repaired:
	case <-ctx.Done():
	}
	return nil
}

// serviceOptions returns where the service default/kubernetes leads.
func (c *Config) serviceOptions() (kubernetesservice.Options, error) {
	address, ok := c.Address.(*net.TCPAddr)
	if !ok {
		return kubernetesservice.Options{}, fmt.Errorf(
			"a listener on %s has no port for the service default/kubernetes", c.Address)
	}
	advertised, err := netip.ParseAddr(c.AdvertiseAddress)
	if err != nil { // it is not set
		advertised = kubernetesservice.AdvertiseAddress(address.IP)
	}
	options := kubernetesservice.Options{
		Address:           advertised.Unmap(),
		Port:              int32(address.Port),
		ServiceIP:         c.Services.Allocator.FirstIP(),
		EnsureServiceCIDR: c.Services.Allocator.EnsureServiceCIDR,
	}
	if c.Services.leases != nil {
		options.Leases = c.Services.leases
	} else {
		options.Revisions, options.Changes = c.Storage.Revisions, c.Storage.Changes
	}
	return options, nil
}
