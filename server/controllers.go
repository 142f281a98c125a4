package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/server/internal/controllers"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/garbagecollector"
	"github.com/kinproc/kinproc/server/internal/controllers/kubernetesservice"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
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
	p.tasks.join(p.informers.Shutdown)
	if p.options.ReadOnly {
		return nil
	}
	if len(p.options.EtcdServers) > 0 {
		return p.whileLeading(p.runLoops)
	}
	wait, err := p.runLoops(p.tasks.ctx)
	if err != nil {
		return err
	}
	p.tasks.join(wait)
	return nil
}

// runLoops starts the control loops and the simulated nodes, which end with ctx. The function that
// it returns waits until they have ended.
func (p *plane) runLoops(ctx context.Context) (wait func(), err error) {
	controllers, err := p.runControllers(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := p.runNodes(ctx)
	if err != nil {
		return nil, err
	}
	return func() { nodes(); controllers() }, nil
}

// runControllers starts the control loops, which end with ctx. The function that it returns waits
// until they have ended.
func (p *plane) runControllers(ctx context.Context) (wait func(), err error) {
	config := rest.CopyConfig(p.self.config)
	config.UserAgent = "kube-controller-manager/" + KubernetesVersion + " (kinproc)"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return endsWith{ctx, next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("start controllers: %w", err)
	}
	wait, err = controllers.Start(epoch.With(ctx, &p.requests.gate.epochs), p.options.Controllers,
		controllers.Dependencies{
			Dependencies: loop.Dependencies{
				Config: config, Client: client, Informers: p.informers, Named: p.informers.Named,
			},
			CABundle:     p.access.caBundle(),
			CA:           p.access.pki.CA,
			ServiceCIDRs: p.services.allocator.CIDRs(),
			Tokens:       p.access.tokens,
			Storage:      metadataStorage{p.storage},
			Charges:      &p.charges,
			BuiltIn:      p.chain.Core.Resource,
			Appeared: func(
				ctx context.Context, resources []schema.GroupResource, appeared func(schema.GroupResource),
			) {
				p.storage.Appeared(ctx, resources, kubernetesservice.Keys(), appeared)
			},
		})
	if err != nil {
		return nil, fmt.Errorf("start controllers: %w", err)
	}
	return wait, nil
}

// endsWith fails requests once ctx has ended. Libraries make some without a context, such as those
// of discovery, and would repeat for many seconds those that a stopping server refuses.
type endsWith struct {
	ctx  context.Context
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (e endsWith) RoundTrip(r *http.Request) (*http.Response, error) {
	if e.ctx.Err() != nil {
		return nil, e.ctx.Err()
	}
	response, err := e.next.RoundTrip(r)
	if err == nil && e.ctx.Err() != nil {
		return nil, errors.Join(e.ctx.Err(), response.Body.Close())
	}
	return response, err
}
