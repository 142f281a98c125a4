package chain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"

	restful "github.com/emicklei/go-restful/v3"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"

	"github.com/kinproc/kinproc/chain/aggregator"
	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/chain/extensions"
	"github.com/kinproc/kinproc/chain/fault"
	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/chain/internal/faults"
	"github.com/kinproc/kinproc/chain/internal/timeout"
	"github.com/kinproc/kinproc/chain/internal/tracer"
	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/chain/trace"
)

var extensionsVersion = apiextensionsv1.SchemeGroupVersion

// Config configures the chain.
type Config struct {
	// Generic is shared by the three servers, each of which gets a copy. Only the aggregator's copy
	// has the filters, so a request passes them once.
	Generic   *genericapiserver.Config
	Informers informers.SharedInformerFactory
	Storage   *Storage
	// StorageAlive ends when the storage cannot answer any more, with the reason as its cause. The
	// requests that are waiting are answered then. If nil, the storage does not fail.
	StorageAlive context.Context
	// Abandonable, if set, marks the context of a request that nobody waits for once StorageAlive
	// has ended, so that the storage may let it hang.
	Abandonable func(context.Context) context.Context
	// Own, if set, reports whether a context is that of a request by which the control plane calls
	// itself. Faults do not select such requests unless they name their client.
	Own func(context.Context) bool
	// ReadOnly is true if the servers must not write on their own.
	ReadOnly bool
	// Groups are the built-in kinds, as [core.Groups] returns them.
	Groups []kind.Group
	// WebServices are served by the core-like server besides its groups.
	WebServices []*restful.WebService

	// ServiceResolver finds the addresses of extension API servers and webhooks.
	ServiceResolver     webhook.ServiceResolver
	AuthResolverWrapper webhook.AuthenticationInfoResolverWrapper
	// Dial, if set, connects to extension API servers.
	Dial utilnet.DialFunc
	// ProxyClientCertFile and ProxyClientKeyFile identify the aggregator to extension API servers.
	ProxyClientCertFile, ProxyClientKeyFile string
	// ProxyClientCertKept says that these files never change.
	ProxyClientCertKept bool
}

// Chain is the assembled chain of servers.
type Chain struct {
	Aggregator *aggregator.Server
	Core       *core.Server
	Extensions *extensions.Server

	informers informers.SharedInformerFactory
	followers *tracer.Followers
	versions  *versions
	workers   *timeout.Workers
	faults    *faults.Faults
	streams   *streams
	readOnly  bool
	prepared  <-chan struct{} // closed when Prepare is done
	complete  chan struct{}   // closed when all paths are served, so that others are 404 and not 503
}

// links returns the constructors of the servers, in the order in which a request passes through
// them. Each server passes on to next what it does not serve.
func (c *Chain) links(
	config *Config, builder *core.Builder,
) []func(next genericapiserver.DelegationTarget) (link, error) {
	generic := config.Generic
	return []func(next genericapiserver.DelegationTarget) (link, error){
		func(next genericapiserver.DelegationTarget) (_ link, err error) {
			first := *generic
			first.AggregatedDiscoveryGroupManager = c.Core.Discovery(generic.AggregatedDiscoveryGroupManager)
			c.Aggregator, err = aggregator.New(first, aggregator.Config{
				Backend:             config.Storage,
				Informers:           config.Informers,
				ServiceResolver:     config.ServiceResolver,
				ProxyClientCertFile: config.ProxyClientCertFile,
				ProxyClientCertKept: config.ProxyClientCertKept,
				Dial:                config.Dial,
				ProxyClientKeyFile:  config.ProxyClientKeyFile,
			}, next)
			return c.Aggregator, err
		},
		func(next genericapiserver.DelegationTarget) (_ link, err error) {
			c.Core, err = builder.Finish(next)
			return c.Core, err
		},
		func(next genericapiserver.DelegationTarget) (_ link, err error) {
			c.Extensions, err = extensions.New(behind(generic), extensions.Config{
				Backend:             config.Storage,
				Informers:           config.Informers,
				ServiceResolver:     config.ServiceResolver,
				AuthResolverWrapper: config.AuthResolverWrapper,
			}, next)
			return c.Extensions, err
		},
		func(genericapiserver.DelegationTarget) (link, error) { return newNotFound(generic), nil },
	}
}

// behind returns the configuration of a server behind another one, whose filters the requests have
// already passed.
func behind(generic *genericapiserver.Config) genericapiserver.Config {
	c := *generic
	c.BuildHandlerChainFunc = func(handler http.Handler, _ *genericapiserver.Config) http.Handler {
		return handler
	}
	// The aggregator takes over the hooks of its delegates, so here they would be registered twice.
	c.PostStartHooks = nil
	// The aggregator has these checks and serves these paths too, so nobody reaches those of its
	// delegates.
	c.HealthzChecks, c.LivezChecks, c.ReadyzChecks = nil, nil, nil
	c.EnableIndex, c.EnableMetrics, c.EnableProfiling = false, false, false
	return c
}

// Assemble makes the servers from back to front, because each server needs the one that it
// delegates to.
//
// The servers record a stack trace for each hook and each path that they register. The time for
// that grows with the depth of the stack, so Assemble and [Chain.Prepare] give them short ones.
func Assemble(config Config) (c *Chain, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err = assemble(config)
	}()
	if <-done; err != nil {
		return nil, fmt.Errorf("assemble the chain: %w", err)
	}
	return c, nil
}

func assemble(config Config) (*Chain, error) {
	alive, mark := cmp.Or(config.StorageAlive, context.Background()), config.Abandonable
	if mark == nil {
		mark = func(ctx context.Context) context.Context { return ctx }
	}
	c := &Chain{
		informers: config.Informers, readOnly: config.ReadOnly,
		followers: tracer.NewFollowers(config.Generic.Serializer),
		versions: &versions{
			storage: config.Storage, authorizer: config.Generic.Authorization.Authorizer,
			serializer: config.Generic.Serializer, stopped: make(chan struct{}),
		},
		workers: timeout.NewWorkers(alive, mark, config.Generic.Serializer),
		faults: faults.New(faults.Config{
			Own: config.Own, Revision: config.Storage.Revision, Serializer: config.Generic.Serializer,
		}),
		streams:  newStreams(),
		complete: make(chan struct{}),
	}
	generic := *config.Generic
	generic.BuildHandlerChainFunc = c.filters
	generic.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	config.Generic = &generic
	builder := core.Begin(behind(&generic), core.Config{
		Backend:     config.Storage,
		Informers:   config.Informers,
		Groups:      config.Groups,
		WebServices: config.WebServices,
	})
	defer builder.Wait()
	var next link
	var target genericapiserver.DelegationTarget
	links := c.links(&config, builder)
	slices.Reverse(links)
	for _, newLink := range links {
		l, err := newLink(target)
		if err != nil {
			return nil, err
		}
		target, next = traced(l, next), l
	}
	if err := c.Core.InstallOpenAPI(c.Aggregator.OpenAPI); err != nil {
		return nil, err
	}
	first := c.Aggregator.GenericAPIServer
	first.Handler.NonGoRestfulMux.UnlistedHandle(trace.FollowPath, c.followers)
	first.Handler.NonGoRestfulMux.UnlistedHandle(fault.Path, c.faults)
	first.Handler.NonGoRestfulMux.UnlistedHandlePrefix(fault.Path+"/", c.faults)
	first.Handler.NonGoRestfulMux.UnlistedHandlePrefix(history.Path+"/", c.versions)
	first.Handler.NonGoRestfulMux.UnlistedHandle(history.MomentsPath,
		http.HandlerFunc(c.versions.ServeMoments))
	if err := first.AddPreShutdownHook("end-long-requests", func() error {
		c.followers.Stop()
		c.versions.Stop()
		c.faults.Stop()
		return nil
	}); err != nil {
		return nil, err
	}
	if config.ReadOnly {
		return c, nil
	}
	crds := c.Extensions.Informers.Apiextensions().V1().CustomResourceDefinitions()
	return c, aggregator.AutoRegister(c.Aggregator, c.LocalGroupVersions(), crds)
}

// Stop waits for the goroutines that handle requests, when there can be no more requests.
func (c *Chain) Stop() { c.workers.Stop() }

// running runs prepared servers.
type running struct {
	chain   *Chain
	servers interface{ Run(context.Context) error }
}

// Run runs the servers until ctx ends.
func (r running) Run(ctx context.Context) error {
	var completing sync.WaitGroup
	defer completing.Wait()
	completing.Go(func() {
		for _, signal := range r.chain.Aggregator.GenericAPIServer.MuxAndDiscoveryCompleteSignals() {
			select {
			case <-signal:
			case <-ctx.Done():
				return
			}
		}
		close(r.chain.complete)
	})
	return r.servers.Run(ctx)
}

// Prepare begins to finish the servers before they run, which may go on during StartInformers. The
// function that it returns waits until they are finished, and returns what runs them.
func (c *Chain) Prepare() (wait func() (interface{ Run(context.Context) error }, error)) {
	var prepared interface{ Run(context.Context) error }
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		prepared, err = c.Aggregator.PrepareRun()
		if err == nil && !c.readOnly {
			err = c.Aggregator.ServeLocal(c.LocalGroupVersions())
		}
	}()
	c.prepared = done
	return func() (interface{ Run(context.Context) error }, error) {
		if <-done; err != nil {
			return nil, fmt.Errorf("prepare the chain: %w", err)
		}
		return running{c, prepared}, nil
	}
}

// LocalGroupVersions returns the group versions that the chain itself serves from the start.
func (c *Chain) LocalGroupVersions() []schema.GroupVersion {
	return append(slices.Clone(c.Core.GroupVersions), extensionsVersion)
}

// informerFactory is implemented by the generated informer factories of all API groups.
type informerFactory interface {
	StartWithContext(ctx context.Context)
	WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool
}

// StartInformers starts the informers that the servers and their admission plugins read from, and
// waits until their caches have synced. The informers run until runCtx ends. The servers'
// post-start hooks would do the same, but poll only every 100 ms. Prepare must have begun.
func (c *Chain) StartInformers(ctx, runCtx context.Context) error {
	for _, f := range []informerFactory{
		c.Aggregator.APIRegistrationInformers, c.Extensions.Informers, c.informers,
	} {
		f.StartWithContext(runCtx)
	}
	var serving errgroup.Group
	serving.Go(func() error {
		if err := wait(ctx, c.Aggregator.APIRegistrationInformers); err != nil || c.readOnly {
			return err
		}
		<-c.prepared
		return c.Aggregator.ServeRegistered()
	})
	return errors.Join(wait(ctx, c.Extensions.Informers), wait(ctx, c.informers), serving.Wait())
}

// wait waits until the informers have synced.
func wait(ctx context.Context, f informerFactory) error {
	for informer, synced := range f.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("wait for the informer of %s to sync: %w", informer, context.Cause(ctx))
		}
	}
	return nil
}
