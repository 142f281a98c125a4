package server

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/server/internal/controllers"
	"github.com/kinproc/kinproc/server/internal/controllers/garbagecollector"
	"github.com/kinproc/kinproc/server/internal/epoch"
)

// metadataStorage is the storage as the garbage collector sees it.
type metadataStorage struct{ *chain.Storage }

// FollowMetadata implements garbagecollector.Storage.
func (s metadataStorage) FollowMetadata(ctx context.Context, h garbagecollector.Handler) {
	s.Storage.FollowMetadata(ctx, h)
}

// startControllers starts the control loops without waiting for them to catch up. Whatever depends
// on their work waits for it, such as admission of a pod that needs its namespace's service
// account.
func (p *plane) startControllers() error {
	ctx := p.tasks.ctx
	if p.options.ReadOnly {
		return nil
	}
	wait, err := controllers.Start(epoch.With(ctx, &p.requests.gate.epochs), p.options.Controllers,
		controllers.Dependencies{
			Config:       p.self.config,
			Client:       p.self.client,
			Informers:    p.informers,
			Named:        p.storage.Informer,
			CABundle:     p.access.caBundle(),
			CA:           p.access.pki.CA,
			ServiceCIDRs: p.services.allocator.CIDRs(),
			Appeared: func(ctx context.Context, resource schema.GroupResource) error {
				return p.storage.Appeared(ctx, core.PathOf(resource))
			},
			Storage: metadataStorage{p.storage},
			BuiltIn: p.chain.Core.Resource,
		})
	if err != nil {
		return fmt.Errorf("start controllers: %w", err)
	}
	p.tasks.run(func() {
		<-ctx.Done()
		wait()
		p.informers.Shutdown()
	})
	return nil
}
