package server

import (
	"context"

	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/controllers/rootca"
)

// A control plane that begins with a snapshot has keys and an address of its own. What the snapshot
// says about those of another control plane is corrected before the control plane is ready: by the
// hooks of every start for the service default/kubernetes and the config map
// extension-apiserver-authentication, and by the following hook for the config maps
// kube-root-ca.crt, which a control loop would correct a little later.

// forkHooks returns the hooks that only a control plane with Options.From has.
func (p *plane) forkHooks(client kubernetes.Interface) map[string]func(context.Context) error {
	if p.options.From == nil {
		return nil
	}
	if enabled, err := p.enables(rootca.Name); err != nil || !enabled {
		return nil // whoever keeps the config maps instead, if anybody, decides what is in them
	}
	return map[string]func(context.Context) error{
		"publish-root-certificates": func(ctx context.Context) error {
			return rootca.Publish(ctx, client, p.access.caBundle())
		},
	}
}
