// Package loops runs the control loops and the simulated nodes, in one of the control planes that
// share an etcd.
package loops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/server/internal/admission/quota"
	"github.com/kinproc/kinproc/server/internal/allocation"
	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/bootstrap/kubernetesservice"
	"github.com/kinproc/kinproc/server/internal/controllers"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/network/loadbalancers"
	"github.com/kinproc/kinproc/server/internal/metricsapi"
	"github.com/kinproc/kinproc/server/internal/requests"
	"github.com/kinproc/kinproc/server/internal/requests/epoch"
	"github.com/kinproc/kinproc/server/internal/simulated"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// Config says which loops run, and what they need.
type Config struct {
	Requests  *requests.Requests
	Informers interface {
		loop.Informers
		Named(example runtime.Object, name string) cache.SharedIndexInformer
	}
	Storage   *chain.Storage
	Access    *auth.Access
	Allocator *allocation.Allocator
	Charges   *quota.Charges
	BuiltIn   func(kind schema.GroupVersionKind) (name string, namespaced, ok bool)

	// Controllers selects the control loops.
	Controllers []string
	// Nodes is the number of simulated nodes, and Capacity what each has.
	Nodes    int
	Capacity corev1.ResourceList
	// NodeKinds are further nodes, which differ from those.
	NodeKinds []simulated.Kind
	// Marks say which nodes that others make are simulated too.
	Marks simulated.Marks
	// LeaseDuration is that of the simulated nodes' leases, unless zero.
	LeaseDuration time.Duration
	// NodesStay is true if simulated nodes are left alone when there are to be none.
	NodesStay bool
	// Metrics registers the metrics APIs if ServesMetrics is true. Otherwise it removes those of an
	// earlier start, if StaleMetrics is true.
	Metrics                     metricsapi.Registration
	ServesMetrics, StaleMetrics bool
	// LoadBalancers is where the addresses of load balancers come from.
	LoadBalancers loadbalancers.Range
	// MakesStorageClass is true if a default storage class is made when a claim needs one.
	MakesStorageClass bool
	// Behaviors are those of simulated pods. It may be nil.
	Behaviors *simulated.Behaviors
	// Version is that of Kubernetes.
	Version string
	// SharesEtcd is true if other control planes may use the same etcd. One of them runs the loops.
	SharesEtcd bool
}

type loops struct {
	Config
	stopper *stopper.Stopper
	lease   *lease // nil unless control planes share etcd
}

// Start starts the control loops without waiting for them to catch up. Whatever depends on their
// work waits for it, such as admission of a pod that needs its namespace's service account.
func Start(c Config, s *stopper.Stopper) error {
	l := &loops{Config: c, stopper: s}
	if c.SharesEtcd {
		return l.whileLeading(l.run)
	}
	wait, err := l.run(s.Context())
	if err != nil {
		return err
	}
	s.Wait(wait)
	return nil
}

// run starts the control loops and the simulated nodes, which end with ctx. The function that
// it returns waits until they have ended.
func (l *loops) run(ctx context.Context) (wait func(), err error) {
	controllers, err := l.runControllers(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := l.runNodes(ctx)
	if err != nil {
		return nil, err
	}
	metrics := l.registerMetrics(ctx)
	return func() { metrics(); nodes(); controllers() }, nil
}

// runControllers starts the control loops, which end with ctx. The function that it returns waits
// until they have ended.
func (l *loops) runControllers(ctx context.Context) (wait func(), err error) {
	config := l.config("kube-controller-manager")
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return endsWith{ctx, next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("start controllers: %w", err)
	}
	wait, err = controllers.Start(epoch.With(ctx, &l.Requests.Gate.Epochs), l.Controllers,
		controllers.Dependencies{
			Dependencies: loop.Dependencies{
				Config: config, Client: client, Informers: l.Informers, Named: l.Informers.Named,
			},
			CABundle:     l.Access.CABundle(),
			CA:           l.Access.PKI.CA,
			ServiceCIDRs: l.Allocator.CIDRs(),
			Tokens:       l.Access.Tokens,
			Storage:      l.Storage,
			Charges:      l.Charges,

			LoadBalancers:     l.LoadBalancers,
			MakesStorageClass: l.MakesStorageClass,
			BuiltIn:           l.BuiltIn,
			Appeared: func(
				ctx context.Context, resources []schema.GroupResource, appeared func(schema.GroupResource),
			) {
				l.Storage.Appeared(ctx, resources, kubernetesservice.Keys(), appeared)
			},
		})
	if err != nil {
		return nil, fmt.Errorf("start controllers: %w", err)
	}
	return wait, nil
}

// config returns the configuration of clients of the loops of a component.
func (l *loops) config(component string) *rest.Config {
	config := rest.CopyConfig(l.Requests.Config)
	config.UserAgent = component + "/" + l.Version + " (kinproc)"
	if l.lease != nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return inTerm{l.lease, next} })
	}
	return config
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
