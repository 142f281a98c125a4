package server

import (
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission/initializer"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/resourceconfig"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/admission/plugin"
	"github.com/kinproc/kinproc/server/internal/controllers/resourcequotas"
	"github.com/kinproc/kinproc/server/internal/requests"
)

// newChain assembles the chain. It returns the admission plugins that must not start before the
// informers have synced.
func (p *plane) newChain() (*admission.Deferred, error) {
	dynamicConfig := rest.CopyConfig(p.requests.Config)
	dynamicConfig.ContentConfig = rest.ContentConfig{}
	dynamicClient, err := dynamic.NewForConfig(dynamicConfig)
	if err != nil {
		return nil, err
	}
	client := p.requests.Client
	groups := core.Groups(core.Dependencies{
		Client:          client,
		Authenticator:   union.New(p.ownAuthenticator(), p.access.Authenticator),
		Audiences:       p.access.Tokens.Audiences(),
		Authorizer:      p.access.Authorizer,
		Rules:           p.access.Authorizer,
		Roles:           p.access.Authorizer,
		Tokens:          p.access.Tokens,
		Services:        p.services.allocator,
		EventTTL:        p.options.EventTTL,
		AllowLocalProxy: p.options.ProxyAllowLocalAddresses,
	})
	scheme, err := core.Scheme()
	if err != nil {
		return nil, err
	}
	shared := p.allInformers.Factory()
	p.informers = shared

	generic := genericapiserver.NewConfig(serializer.NewCodecFactory(scheme))
	generic.EffectiveVersion = newEffectiveVersion()
	if err := p.access.ApplyTo(generic); err != nil {
		return nil, err
	}
	generic.ExternalAddress = p.listener.Addr().String()
	generic.LoopbackClientConfig = p.requests.Config
	generic.LongRunningFunc, generic.RequestInfoResolver = requests.IsLongRunning, requests.Infos{}
	generic.EnableProfiling = !p.options.DisableProfiling
	generic.AddHealthChecks(healthz.NamedCheck("etcd", p.etcd.Check))
	generic.AddReadyzChecks(healthz.NamedCheck("etcd-readiness", p.etcd.Check))
	certificate := healthz.NamedCheck("loopback-serving-certificate", p.access.CheckServingCertificate)
	generic.HealthzChecks = append(generic.HealthzChecks, certificate)
	generic.LivezChecks = append(generic.LivezChecks, certificate)
	if p.encryption != nil {
		generic.HealthzChecks = append(generic.HealthzChecks, p.encryption.Checks...)
		generic.ReadyzChecks = append(generic.ReadyzChecks, p.encryption.Checks...)
	}
	generic.RequestTimeout = p.options.RequestTimeout
	generic.MinRequestTimeout = p.options.MinRequestTimeout
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
	// Versions that were removed from Kubernetes are no error, because client-go still knows them.
	if generic.MergedResourceConfig, err = resourceconfig.MergeAPIResourceConfigs(resources,
		p.options.switches(), clientscheme.Scheme); err != nil {
		return nil, err
	}
	if err := p.options.applyAudit(generic); err != nil {
		return nil, fmt.Errorf("auditing: %w", err)
	}
	if err := p.addBootstrapHooks(generic); err != nil {
		return nil, err
	}
	resolver, err := p.newResolver(shared)
	if err != nil {
		return nil, err
	}
	authResolver := webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, p.ownWebhookConfig(),
		generic.TracerProvider)
	late := &admission.Deferred{}
	webhooks := webhookinitializer.NewPluginInitializer(authResolver, resolver)
	tolerations := admission.TolerationSeconds{
		NotReady:    *p.options.DefaultNotReadyTolerationSeconds,
		Unreachable: *p.options.DefaultUnreachableTolerationSeconds,
	}
	counted, err := p.enables(resourcequotas.Name)
	if err != nil {
		return nil, err
	}
	keys, err := p.access.Tokens.WebServices(generic.ExternalAddress)
	if err != nil {
		return nil, err
	}
	// The plugins take as long to make as the servers, so they are made at the same time.
	plugins, made := &admission.Pending{}, make(chan error, 1)
	configured := *generic
	// Before the first plugin, ApplyTo adds a hook to those of generic. The servers must not miss it.
	hooked := make(chan struct{})
	begun := sync.OnceFunc(func() { close(hooked) })
	go func() {
		defer begun()
		made <- p.options.Admission.ApplyTo(&configured, late.Track(shared), client, dynamicClient,
			utilfeature.DefaultFeatureGate, configured.EffectiveVersion, webhooks,
			core.AdmissionInitializer(), initializer.NewAPIServerIDInitializer(configured.APIServerID),
			tolerations, admission.Quotas{Counted: counted, Charges: &p.charges},
			plugin.StorageInitializer{Storage: p.storage},
			late, admission.Begun(begun))
	}()
	generic.AdmissionControl = plugins
	// This comes last, because the controller starts running at once.
	generic.MaxRequestsInFlight = p.options.MaxRequestsInFlight
	generic.MaxMutatingRequestsInFlight = p.options.MaxMutatingRequestsInFlight
	if !p.options.DisablePriorityAndFairness {
		total := p.options.MaxRequestsInFlight + p.options.MaxMutatingRequestsInFlight
		generic.FlowControl = utilflowcontrol.New(shared, client.FlowcontrolV1(), total)
	}
	<-hooked
	p.chain, err = chain.Assemble(chain.Config{
		Generic:             generic,
		Informers:           shared.Until(p.ready),
		Storage:             p.storage,
		StorageAlive:        p.etcd.Alive,
		Abandonable:         embed.Abandonable,
		ReadOnly:            p.options.ReadOnly,
		Groups:              groups,
		WebServices:         keys,
		ServiceResolver:     resolver,
		ProxyClientCertFile: p.access.ProxyCertFile,
		ProxyClientKeyFile:  p.access.ProxyKeyFile,
		AuthResolverWrapper: authResolver,
	})
	if failed := <-made; failed != nil {
		return nil, fmt.Errorf("admission: %w", failed)
	}
	plugins.Set(configured.AdmissionControl)
	if p.options.DisallowPrivileged {
		plugins.Set(admission.RefusePrivileged(configured.AdmissionControl))
	}
	return late, err
}

// ownAuthenticator authenticates the token with which the server calls itself. Requests with it are
// authenticated anyway; this makes token reviews recognize it too.
func (p *plane) ownAuthenticator() authenticator.Request {
	own := &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}
	return authenticatorfactory.NewFromTokens(map[string]*user.DefaultInfo{
		p.requests.Config.BearerToken: own,
	}, p.access.Tokens.Audiences())
}

// ownWebhookConfig is the client configuration for webhooks at the service default/kubernetes. They
// lead back to this server, to an extension API server behind the aggregator. It uses TLS rather
// than the in-process transport, because such a webhook may specify a CA bundle.
func (p *plane) ownWebhookConfig() *rest.Config {
	return &rest.Config{
		BearerToken:     p.requests.Config.BearerToken,
		UserAgent:       p.requests.Config.UserAgent,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.access.CABundle()},
	}
}
