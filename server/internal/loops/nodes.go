package loops

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/requests/epoch"
	"github.com/kinproc/kinproc/server/internal/simulated"
)

// runNodes starts to simulate nodes until ctx ends, without waiting for them. The function that it
// returns waits until that has ended. If there are none to make, nothing runs before the first node
// exists: one that somebody marks, or one of an earlier start, which is deleted unless it belongs
// to a snapshot that the control plane began with.
func (l *loops) runNodes(ctx context.Context) (wait func(), err error) {
	makes := l.Nodes > 0 || len(l.NodeKinds) > 0
	c := simulated.Config{
		Informers: l.Informers, Count: l.Nodes, SurplusStays: !makes && l.NodesStay,
		Marks:         l.Marks,
		Behaviors:     l.Behaviors,
		Capacity:      l.Capacity,
		Kinds:         l.NodeKinds,
		Version:       l.Version,
		LeaseDuration: l.LeaseDuration,
	}
	if err := simulated.Check(c.Count, c.Capacity, c.Kinds); err != nil {
		return nil, fmt.Errorf("simulate nodes: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if !makes {
			l.Storage.Appeared(ctx, []schema.GroupResource{corev1.Resource("nodes")}, nil,
				func(schema.GroupResource) {})
		}
		if ctx.Err() != nil {
			return
		}
		if err := l.simulate(ctx, c); err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Simulated nodes failed")
		}
	}()
	return func() { <-ended }, nil
}

func (l *loops) simulate(ctx context.Context, c simulated.Config) (err error) {
	if c.Client, err = kubernetes.NewForConfig(l.config("kubelet")); err != nil {
		return err
	}
	nodes, err := simulated.New(c)
	if err != nil {
		return err
	}
	l.Informers.StartWithContext(ctx)
	return nodes.Run(epoch.With(ctx, &l.Requests.Gate.Epochs))
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
