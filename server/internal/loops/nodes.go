package loops

import (
	"context"
	"fmt"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/requests/epoch"
	"github.com/kinproc/kinproc/server/internal/simulated"
)

// runNodes starts to simulate nodes until ctx ends, without waiting for them. The function that it
// returns waits until that has ended. Without any nodes, it deletes those of an earlier start,
// unless they belong to a snapshot that the control plane began with.
func (l *loops) runNodes(ctx context.Context) (wait func(), err error) {
	if l.Nodes == 0 && len(l.NodeKinds) == 0 && l.NodesStay {
		return func() {}, nil
	}
	client, err := kubernetes.NewForConfig(l.config("kubelet"))
	if err != nil {
		return nil, fmt.Errorf("simulate nodes: %w", err)
	}
	nodes, err := simulated.New(simulated.Config{
		Client: client, Informers: l.Informers, Count: l.Nodes,
		Behaviors:     l.Behaviors,
		Capacity:      l.Capacity,
		Kinds:         l.NodeKinds,
		Version:       l.Version,
		LeaseDuration: l.LeaseDuration,
	})
	if err != nil {
		return nil, fmt.Errorf("simulate nodes: %w", err)
	}
	l.Informers.StartWithContext(ctx)
	ctx = epoch.With(ctx, &l.Requests.Gate.Epochs)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := nodes.Run(ctx); err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Simulated nodes failed")
		}
	}()
	return func() { <-ended }, nil
}

// registerMetrics registers the metrics APIs without waiting for that, or removes those of an
// earlier start. The function that it returns waits until that has ended.
func (l *loops) registerMetrics(ctx context.Context) (wait func()) {
	do := l.Metrics.Register
	if !l.ServesMetrics {
		if !l.StaleMetrics {
			return func() {}
		}
		do = l.Metrics.Remove
	}
	ctx = epoch.With(ctx, &l.Requests.Gate.Epochs)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do(ctx)
	}()
	return func() { <-ended }
}
