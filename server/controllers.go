package server

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/server/internal/controllers"
)

// startControllers starts the control loops and does not wait until they have caught up: what needs their work, such as the admission
// of pods that need their namespace's service account, waits for it by itself.
func (s *Server) startControllers(ctx context.Context, shared informers.SharedInformerFactory) error {
	client, err := kubernetes.NewForConfig(s.loopback)
	if err != nil {
		return err
	}
	wait, err := controllers.Start(ctx, s.options.Controllers, controllers.Dependencies{
		Config:       s.loopback,
		Client:       client,
		Informers:    shared,
		CABundle:     s.access.pki.CA.Cert,
		ServiceCIDRs: s.services.allocator.CIDRs(),
		Appeared: func(ctx context.Context, resource schema.GroupResource) error {
			return s.backend.Appeared(ctx, core.PathOf(resource))
		},
	})
	if err != nil {
		return fmt.Errorf("start controllers: %w", err)
	}
	s.run(func() {
		<-ctx.Done()
		wait()
		shared.Shutdown()
	})
	return nil
}
