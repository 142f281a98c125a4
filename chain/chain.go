package chain

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	restful "github.com/emicklei/go-restful/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	openapicommon "k8s.io/kube-openapi/pkg/common"

	"github.com/kinproc/kinproc/chain/aggregator"
	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/chain/core/kind"
	"github.com/kinproc/kinproc/chain/extensions"
	"github.com/kinproc/kinproc/chain/storage"
	"github.com/kinproc/kinproc/chain/trace"
)

var extensionsVersion = apiextensionsv1.SchemeGroupVersion

// Config is what the chain is made of.
type Config struct {
	// Generic is shared by the three servers, each of which gets a copy. Its handler chain is the aggregator's: a request passes it once.
	Generic   *genericapiserver.Config
	Informers informers.SharedInformerFactory
	Backend   *storage.Backend
	// Scheme is that of Groups, the built-in kinds.
	Scheme *runtime.Scheme
	Groups []kind.Group
	// Definitions are the OpenAPI definitions of the Go types.
	Definitions openapicommon.GetOpenAPIDefinitions
	// WebServices are served by the core-like server beside its groups.
	WebServices []*restful.WebService

	// ServiceResolver finds the addresses of extension API servers and webhooks.
	ServiceResolver     webhook.ServiceResolver
	AuthResolverWrapper webhook.AuthenticationInfoResolverWrapper
	// ProxyClientCertFile and ProxyClientKeyFile identify the aggregator to extension API servers.
	ProxyClientCertFile, ProxyClientKeyFile string
}

// Chain is the assembled chain, by link.
type Chain struct {
	Aggregator *aggregatorapiserver.APIAggregator
	Core       *core.Server
	Extensions *apiextensionsapiserver.CustomResourceDefinitions

	informers informers.SharedInformerFactory
}

// Link is a server of the chain.
type Link struct {
	Name string
	// New makes the server, which passes on to next what it does not serve.
	New func(next genericapiserver.DelegationTarget) (genericapiserver.DelegationTarget, error)
}

// links are the servers in the order in which a request meets them. Each keeps what it makes in c.
func links(config *Config, c *Chain) []Link {
	return []Link{
		{aggregatorName, func(next genericapiserver.DelegationTarget) (_ genericapiserver.DelegationTarget, err error) {
			c.Aggregator, err = aggregator.New(*config.Generic, aggregator.Config{
				Backend:             config.Backend,
				Informers:           config.Informers,
				ServiceResolver:     config.ServiceResolver,
				ProxyClientCertFile: config.ProxyClientCertFile,
				ProxyClientKeyFile:  config.ProxyClientKeyFile,
			}, next)
			if err != nil {
				return nil, err
			}
			return c.Aggregator.GenericAPIServer, nil
		}},
		{coreName, func(next genericapiserver.DelegationTarget) (_ genericapiserver.DelegationTarget, err error) {
			c.Core, err = core.New(behind(config.Generic), core.Config{
				Backend:     config.Backend,
				Informers:   config.Informers,
				Scheme:      config.Scheme,
				Groups:      config.Groups,
				Definitions: config.Definitions,
				WebServices: config.WebServices,
			}, next)
			if err != nil {
				return nil, err
			}
			return c.Core.GenericAPIServer, nil
		}},
		{extensionsName, func(next genericapiserver.DelegationTarget) (_ genericapiserver.DelegationTarget, err error) {
			c.Extensions, err = extensions.New(behind(config.Generic), extensions.Config{
				Backend:             config.Backend,
				Informers:           config.Informers,
				ServiceResolver:     config.ServiceResolver,
				AuthResolverWrapper: config.AuthResolverWrapper,
			}, next)
			if err != nil {
				return nil, err
			}
			return c.Extensions.GenericAPIServer, nil
		}},
		{notFoundName, func(genericapiserver.DelegationTarget) (genericapiserver.DelegationTarget, error) {
			handler := notfoundhandler.New(serializer.NewCodecFactory(config.Scheme).WithoutConversion(), genericapifilters.NoMuxAndDiscoveryIncompleteKey)
			return genericapiserver.NewEmptyDelegateWithCustomHandler(handler), nil
		}},
	}
}

// behind is the configuration of a server that requests reach through another one: they have passed the filters already.
func behind(generic *genericapiserver.Config) genericapiserver.Config {
	c := *generic
	c.BuildHandlerChainFunc = func(handler http.Handler, _ *genericapiserver.Config) http.Handler { return handler }
	// The aggregator takes these over from its delegates; here they would be registered twice.
	c.PostStartHooks = nil
	return c
}

// Assemble makes the servers from back to front: each is made with the one that it delegates to.
func Assemble(config *Config) (*Chain, error) {
	c := &Chain{informers: config.Informers}
	config.Generic.BuildHandlerChainFunc = c.handlerChain
	var next genericapiserver.DelegationTarget
	links := links(config, c)
	for i := len(links) - 1; i >= 0; i-- {
		var err error
		if next, err = links[i].New(next); err != nil {
			return nil, fmt.Errorf("assemble the chain: %w", err)
		}
		if i > 0 {
			next = c.traced(links, i, next)
		}
	}
	if err := c.Core.InstallOpenAPI(); err != nil {
		return nil, fmt.Errorf("assemble the chain: %w", err)
	}
	crds := c.Extensions.Informers.Apiextensions().V1().CustomResourceDefinitions()
	if err := aggregator.AutoRegister(c.Aggregator, c.LocalGroupVersions(), crds); err != nil {
		return nil, fmt.Errorf("assemble the chain: %w", err)
	}
	return c, nil
}

// LocalGroupVersions are those that the chain serves itself from the start.
func (c *Chain) LocalGroupVersions() []schema.GroupVersion {
	return append(slices.Clone(c.Core.GroupVersions), extensionsVersion)
}

// handlerChain is kube-apiserver's filters in front of the first server.
func (c *Chain) handlerChain(handler http.Handler, config *genericapiserver.Config) http.Handler {
	traced := *config
	traced.Authentication.Authenticator = tracedAuthenticator{config.Authentication.Authenticator, config.Authorization.Authorizer}
	traced.Authorization.Authorizer = tracedAuthorizer{config.Authorization.Authorizer}
	traced.FlowControl = tracedFlowControl{config.FlowControl}
	first := c.traceLink(aggregatorName, coreName, handler)
	first = answerPanics(c.checkBodies(first, config.MaxRequestBodyBytes), config.Serializer)
	return refuseUnread(trace.WithTrace(genericapiserver.DefaultBuildHandlerChain(first, &traced)))
}

// informerFactory is what the generated factories of all API groups have in common.
type informerFactory interface {
	Start(stop <-chan struct{})
	WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool
}

// StartInformers starts the informers that the servers and their admission plugins read from, which end with runCtx, and waits for them. The
// servers' hooks would do that too, and look every tenth of a second whether it is done.
func (c *Chain) StartInformers(ctx, runCtx context.Context) error {
	factories := []informerFactory{c.Extensions.Informers, c.Aggregator.APIRegistrationInformers, c.informers}
	for _, f := range factories {
		f.Start(runCtx.Done())
	}
	for _, f := range factories {
		for informer, synced := range f.WaitForCacheSync(ctx.Done()) {
			if !synced {
				return fmt.Errorf("read all objects of type %s: %w", informer, context.Cause(ctx))
			}
		}
	}
	return nil
}
