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
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/resourcequotas"
)

// newChain assembles the chain. It returns the admission plugins that must not start before the
// informers have synced.
func (p *plane) newChain() (*admission.Deferred, error) {
	dynamicConfig := rest.CopyConfig(p.self.config)
	dynamicConfig.ContentConfig = rest.ContentConfig{}
	dynamicClient, err := dynamic.NewForConfig(dynamicConfig)
	if err != nil {
		return nil, err
	}
	client := p.self.client
	groups := core.Groups(core.Dependencies{
		Client:          client,
		Authenticator:   union.New(p.ownAuthenticator(), p.access.authenticator),
		Audiences:       p.access.tokens.Audiences(),
		Authorizer:      p.access.authorizer,
		Rules:           p.access.authorizer,
		Roles:           p.access.authorizer,
		Tokens:          p.access.tokens,
		Services:        p.services.allocator,
		EventTTL:        p.options.EventTTL,
		AllowLocalProxy: p.options.ProxyAllowLocalAddresses,
	})
	scheme, err := core.Scheme()
	if err != nil {
		return nil, err
	}
	shared := newInformerFactory(p.tasks.ctx, client, p.storage)
	p.informers = shared

	generic := genericapiserver.NewConfig(serializer.NewCodecFactory(scheme))
	generic.EffectiveVersion = newEffectiveVersion()
	if err := p.access.applyTo(generic, p.options, p.listener); err != nil {
		return nil, err
	}
	generic.ExternalAddress = p.listener.Addr().String()
	generic.LoopbackClientConfig = p.self.config
	generic.LongRunningFunc = longRunning(p.isProxied)
	generic.EnableProfiling = !p.options.DisableProfiling
	generic.AddHealthChecks(healthz.NamedCheck("etcd", p.etcd.check))
	generic.AddReadyzChecks(healthz.NamedCheck("etcd-readiness", p.etcd.check))
	certificate := healthz.NamedCheck("loopback-serving-certificate", p.access.checkServingCertificate)
	generic.HealthzChecks = append(generic.HealthzChecks, certificate)
	generic.LivezChecks = append(generic.LivezChecks, certificate)
	p.encryption.applyTo(generic, p)
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
	keys, err := p.access.tokens.WebServices(generic.ExternalAddress)
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
		Informers:           servingInformers{shared, p.ready},
		Storage:             p.storage,
		StorageAlive:        p.etcd.alive,
		Abandonable:         embed.Abandonable,
		ReadOnly:            p.options.ReadOnly,
		Groups:              groups,
		WebServices:         keys,
		ServiceResolver:     resolver,
		ProxyClientCertFile: p.access.proxyCertFile,
		ProxyClientKeyFile:  p.access.proxyKeyFile,
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
		p.self.config.BearerToken: own,
	}, p.access.tokens.Audiences())
}

// ownWebhookConfig is the client configuration for webhooks at the service default/kubernetes. They
// lead back to this server, to an extension API server behind the aggregator. It uses TLS rather
// than the in-process transport, because such a webhook may specify a CA bundle.
func (p *plane) ownWebhookConfig() *rest.Config {
	return &rest.Config{
		BearerToken:     p.self.config.BearerToken,
		UserAgent:       p.self.config.UserAgent,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.access.caBundle()},
	}
}
