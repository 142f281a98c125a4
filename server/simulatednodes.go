package server

import (
	"context"
	"fmt"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/internal/epoch"
	"github.com/kinproc/kinproc/server/internal/nodes"
)

// runNodes starts to simulate nodes until ctx ends, without waiting for them. The function that it
// returns waits until that has ended. Without any nodes, it deletes those of an earlier start,
// unless they belong to a snapshot that the control plane began with.
func (p *plane) runNodes(ctx context.Context) (wait func(), err error) {
	count := p.options.SimulatedNodes
	if count == 0 && (p.fresh || p.options.From != nil) {
		return func() {}, nil
	}
	config := rest.CopyConfig(p.requests.Config)
	config.UserAgent = "kubelet/" + KubernetesVersion + " (kinproc)"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("simulate nodes: %w", err)
	}
	simulated, err := nodes.New(nodes.Config{
		Client: client, Informers: p.informers, Count: count,
		Capacity: p.options.SimulatedNodeCapacity,
		Version:  KubernetesVersion,
	})
	if err != nil {
		return nil, fmt.Errorf("simulate nodes: %w", err)
	}
	p.informers.StartWithContext(ctx)
	ctx = epoch.With(ctx, &p.requests.Gate.Epochs)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := simulated.Run(ctx); err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Simulated nodes failed")
		}
	}()
	return func() { <-ended }, nil
}
