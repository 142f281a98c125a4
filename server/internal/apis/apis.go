// Package apis makes the chain of API servers with all that they need: filters, informers,
// admission and audit.
package apis

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission/initializer"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/server/resourceconfig"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/chain/aggregator"
	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/admission/plugin"
	"github.com/kinproc/kinproc/server/internal/allocation"
	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/etcdconn"
	"github.com/kinproc/kinproc/server/internal/informers"
	"github.com/kinproc/kinproc/server/internal/requests"
	"github.com/kinproc/kinproc/server/internal/requests/loopback"
	"github.com/kinproc/kinproc/server/internal/requests/patches"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// Config says what the API servers are made of.
type Config struct {
	Storage *chain.Storage
	Etcd    *etcdconn.Conn
	// Checks are those of the encryption of stored objects.
	Checks    []healthz.HealthChecker
	Requests  *requests.Requests
	Access    *auth.Access
	Allocator *allocation.Allocator
	Informers *informers.Factory
	// Address is where the server listens.
	Address net.Addr
	// Identity is the ID of this API server, or empty.
	Identity string
	Version  basecompatibility.EffectiveVersion
	// Flags are what /flagz shows.
	Flags flagz.Reader
	// Hooks run after the start of the servers. /readyz names them.
	Hooks map[string]func(context.Context)

	EventTTL, RequestTimeout                         time.Duration
	MinRequestTimeout                                int // in seconds
	MaxRequestsInFlight, MaxMutatingRequestsInFlight int
	PriorityAndFairness, Profiling                   bool
	// Dial, if set, connects to webhooks and extension API servers.
	Dial utilnet.DialFunc
	// Kubelet answers for simulated pods.
	Kubelet core.Kubelet
	// DialExtensions, if set, connects to extension API servers in place of Dial.
	DialExtensions utilnet.DialFunc
	// AllowLocalProxy and EndpointsOnly restrict where requests are sent on to.
	AllowLocalProxy, EndpointsOnly bool
	// Resources switches group versions and resources on and off.
	Resources cliflag.ConfigurationMap
	ReadOnly  bool

	// Audit and AuditBackend say where audit events go; AuditBackend may be nil.
	Audit        *genericoptions.AuditOptions
	AuditBackend audit.Backend

	Admission   *genericoptions.AdmissionOptions
	Tolerations admission.TolerationSeconds
	Quotas      admission.Quotas
	// RefusePrivileged is true if privileged containers are.
	RefusePrivileged bool
}

// APIs are the API servers.
type APIs struct {
	Chain *chain.Chain
	// Plugins are the admission plugins that start when the informers have synced.
	Plugins *admission.Deferred

	config  Config
	stopper *stopper.Stopper
	ready   chan struct{} // closed when the server has been ready
}

// NewIdentity returns a new ID for an API server. It is empty if API servers have none.
func NewIdentity() string {
	return genericapiserver.NewConfig(serializer.CodecFactory{}).APIServerID
}

// Open makes the API servers and their admission plugins.
func Open(c Config, s *stopper.Stopper) (*APIs, error) {
	a := &APIs{config: c, stopper: s, Plugins: &admission.Deferred{}, ready: make(chan struct{})}
	dynamicConfig := rest.CopyConfig(c.Requests.Config)
	dynamicConfig.ContentConfig = rest.ContentConfig{}
	dynamicClient, err := dynamic.NewForConfig(dynamicConfig)
	if err != nil {
		return nil, err
	}
	client := c.Requests.Client
	groups := core.Groups(core.Dependencies{
		Client:          client,
		Authenticator:   union.New(c.ownAuthenticator(), c.Access.Authenticator),
		Audiences:       c.Access.Tokens.Audiences(),
		Authorizer:      c.Access.Authorizer,
		Rules:           c.Access.Authorizer,
		Roles:           c.Access.Authorizer,
		Tokens:          c.Access.Tokens,
		Services:        c.Allocator,
		EventTTL:        c.EventTTL,
		AllowLocalProxy: c.AllowLocalProxy,
		Kubelet:         c.Kubelet,
	})
	scheme, err := core.Scheme()
	if err != nil {
		return nil, err
	}
	generic := genericapiserver.NewConfig(serializer.NewCodecFactory(scheme))
	patches.Limit(generic)
	if err := c.applyTo(generic); err != nil {
		return nil, err
	}
	if err := a.addHooks(generic); err != nil {
		return nil, err
	}
	if generic.MergedResourceConfig, err = c.resources(groups); err != nil {
		return nil, err
	}
	resolver, err := c.newResolver()
	if err != nil {
		return nil, err
	}
	authResolver := dialing(webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil,
		c.ownWebhookConfig(), generic.TracerProvider), c.Dial)
	webhooks := webhookinitializer.NewPluginInitializer(authResolver, resolver)
	keys, err := c.Access.Tokens.WebServices(generic.ExternalAddress)
	if err != nil {
		return nil, err
	}
	if err := c.Admission.ApplyTo(generic, a.Plugins.Track(c.Informers), client, dynamicClient,
		utilfeature.DefaultFeatureGate, generic.EffectiveVersion, webhooks,
		core.AdmissionInitializer(), initializer.NewAPIServerIDInitializer(generic.APIServerID),
		c.Tolerations, c.Quotas, plugin.StorageInitializer{Storage: c.Storage}, a.Plugins,
	); err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	if c.RefusePrivileged {
		generic.AdmissionControl = admission.RefusePrivileged(generic.AdmissionControl)
	}
	// This comes last, because the controller starts running at once.
	if c.PriorityAndFairness {
		total := c.MaxRequestsInFlight + c.MaxMutatingRequestsInFlight
		generic.FlowControl = utilflowcontrol.New(c.Informers, client.FlowcontrolV1(), total)
	}
	a.Chain, err = chain.Assemble(chain.Config{
		Generic:             generic,
		Informers:           c.Informers.Until(a.ready),
		Storage:             c.Storage,
		StorageAlive:        c.Etcd.Alive,
		Abandonable:         embed.Abandonable,
		Own:                 loopback.IsOwn,
		ReadOnly:            c.ReadOnly,
		Groups:              groups,
		WebServices:         keys,
		ServiceResolver:     resolver,
		ProxyClientCertFile: c.Access.ProxyCertFile,
		ProxyClientKeyFile:  c.Access.ProxyKeyFile,
		ProxyClientCertKept: c.Access.ProxyCertKept,
		AuthResolverWrapper: authResolver,
		Dial:                c.dialExtensions(),
	})
	return a, err
}

func (c *Config) dialExtensions() utilnet.DialFunc {
	if c.DialExtensions != nil {
		return c.DialExtensions
	}
	return c.Dial
}

// applyTo configures what the servers share.
func (c *Config) applyTo(generic *genericapiserver.Config) error {
	generic.EffectiveVersion, generic.Flagz = c.Version, c.Flags
	generic.APIServerID = c.Identity
	if err := auth.Apply(c.Access, generic); err != nil {
		return err
	}
	generic.ExternalAddress = c.Address.String()
	generic.LoopbackClientConfig = c.Requests.Config
	generic.LongRunningFunc, generic.RequestInfoResolver = requests.IsLongRunning, requests.Infos{}
	generic.EnableProfiling = c.Profiling
	ownLogCheck(generic.HealthzChecks, generic.LivezChecks, generic.ReadyzChecks)
	generic.AddHealthChecks(healthz.NamedCheck("etcd", c.Etcd.Check))
	generic.AddReadyzChecks(healthz.NamedCheck("etcd-readiness", c.Etcd.Check))
	certificate := healthz.NamedCheck("loopback-serving-certificate", c.Access.CheckServingCertificate)
	generic.HealthzChecks = append(append(generic.HealthzChecks, certificate), c.Checks...)
	generic.LivezChecks = append(generic.LivezChecks, certificate)
	generic.ReadyzChecks = append(generic.ReadyzChecks, c.Checks...)
	generic.RequestTimeout = c.RequestTimeout
	generic.MinRequestTimeout = c.MinRequestTimeout
	generic.MaxRequestsInFlight = c.MaxRequestsInFlight
	generic.MaxMutatingRequestsInFlight = c.MaxMutatingRequestsInFlight
	if err := c.applyAudit(generic); err != nil {
		return fmt.Errorf("auditing: %w", err)
	}
	return nil
}

// ownLogCheck replaces the check of the library, which begins a goroutine that never ends.
func ownLogCheck(lists ...[]healthz.HealthChecker) {
	for _, checks := range lists {
		for i, check := range checks {
			if check == healthz.LogHealthz {
				checks[i] = healthz.NamedCheck(check.Name(), func(*http.Request) error {
					klog.Flush()
					return nil
				})
			}
		}
	}
}

// resources returns which group versions and resources are served.
func (c *Config) resources(groups []kind.Group) (*serverstorage.ResourceConfig, error) {
	resources := serverstorage.NewResourceConfig()
	resources.EnableVersions(apiextensionsv1.SchemeGroupVersion, apiregistrationv1.SchemeGroupVersion)
	for _, g := range groups {
		for _, v := range g.Versions {
			if v.OffByDefault {
				resources.DisableVersions(v.GroupVersion(g.Name)) // so that api/beta=true can enable it
			} else {
				resources.EnableVersions(v.GroupVersion(g.Name))
			}
		}
	}
	// Versions that were removed from Kubernetes are not an error, because client-go still knows
	// them.
	return resourceconfig.MergeAPIResourceConfigs(resources, c.Resources, clientscheme.Scheme)
}

// addHooks adds the hooks, and one that waits until the storage of all built-in kinds can serve
// requests.
func (a *APIs) addHooks(generic *genericapiserver.Config) error {
	hooks := maps.Clone(a.config.Hooks)
	hooks["storage-readiness"] = func(ctx context.Context) {
		_ = wait.PollUntilContextCancel(ctx, time.Millisecond, true,
			func(context.Context) (bool, error) { return a.Chain.Core.StorageReady() == nil, nil })
	}
	for name, hook := range hooks {
		err := generic.AddPostStartHook(name, func(hc genericapiserver.PostStartHookContext) error {
			hook(hc)
			return nil // an error would end the process
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// newResolver returns a resolver for servers outside of this process: extension API servers and
// webhooks.
func (c *Config) newResolver() (*aggregator.Resolver, error) {
	slices, err := proxy.NewEndpointSliceIndexerGetter(c.Informers.Discovery().V1().EndpointSlices())
	if err != nil {
		return nil, fmt.Errorf("resolve services: %w", err)
	}
	return &aggregator.Resolver{
		Services:       c.Informers.Core().V1().Services().Lister(),
		EndpointSlices: slices,
		EndpointsOnly:  c.EndpointsOnly,
		Self:           &url.URL{Scheme: "https", Host: c.Address.String()},
	}, nil
}

// dialing returns a wrapper like w whose clients connect by dial, unless dial is nil.
func dialing(
	w webhook.AuthenticationInfoResolverWrapper, dial utilnet.DialFunc,
) webhook.AuthenticationInfoResolverWrapper {
	if dial == nil {
		return w
	}
	return func(r webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		wrapped := w(r)
		dialed := func(config *rest.Config, err error) (*rest.Config, error) {
			if err != nil {
				return nil, err
			}
			config = rest.CopyConfig(config)
			config.Dial = dial
			return config, nil
		}
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(address string) (*rest.Config, error) {
				return dialed(wrapped.ClientConfigFor(address))
			},
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
				return dialed(wrapped.ClientConfigForService(name, namespace, port))
			},
		}
	}
}

// ownAuthenticator authenticates the token with which the server calls itself. Requests with it are
// authenticated anyway; this makes token reviews recognize it too.
func (c *Config) ownAuthenticator() authenticator.Request {
	own := &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}
	return authenticatorfactory.NewFromTokens(map[string]*user.DefaultInfo{
		c.Requests.Config.BearerToken: own,
	}, c.Access.Tokens.Audiences())
}

// ownWebhookConfig is the client configuration for webhooks at the service default/kubernetes. They
// lead back to this server, to an extension API server behind the aggregator. It uses TLS rather
// than the in-process transport, because such a webhook may specify a CA bundle.
func (c *Config) ownWebhookConfig() *rest.Config {
	return &rest.Config{
		BearerToken:     c.Requests.Config.BearerToken,
		UserAgent:       c.Requests.Config.UserAgent,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.Access.CABundle()},
	}
}
