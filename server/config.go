package server

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission/initializer"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/resourceconfig"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
)

// config puts together what the chain is made of.
func (s *Server) config(ctx context.Context) (*chain.Config, error) {
	client, err := kubernetes.NewForConfig(s.loopback)
	if err != nil {
		return nil, err
	}
	dynamicConfig := rest.CopyConfig(s.loopback)
	dynamicConfig.ContentConfig = rest.ContentConfig{}
	dynamicClient, err := dynamic.NewForConfig(dynamicConfig)
	if err != nil {
		return nil, err
	}
	if err := s.access.connect(&s.options, client, func() rbacauthorizer.Source { return s.watchRoles(ctx, client) }); err != nil {
		return nil, err
	}
	s.groups = core.Groups(core.Dependencies{
		Client:        client,
		Authenticator: union.New(s.ownAuthenticator(), s.access.authenticator),
		Audiences:     s.access.tokens.Audiences(),
		Authorizer:    s.access.authorizer,
		Rules:         s.access.authorizer,
		Roles:         s.access.authorizer.Roles,
		Tokens:        s.access.tokens,
		Services:      s.services.allocator,
	})
	scheme, err := core.Scheme()
	if err != nil {
		return nil, err
	}
	if err := s.connectAllocator(); err != nil {
		return nil, err
	}
	shared := informers.NewSharedInformerFactory(client, 10*time.Minute)

	generic := genericapiserver.NewConfig(serializer.NewCodecFactory(scheme))
	generic.EffectiveVersion = newEffectiveVersion()
	if err := s.access.applyTo(generic, s.listener); err != nil {
		return nil, err
	}
	generic.ExternalAddress = s.listener.Addr().String()
	generic.LoopbackClientConfig = s.loopback
	generic.LongRunningFunc = longRunning()
	generic.AddHealthChecks(healthz.NamedCheck("etcd", s.checkEtcd))
	generic.AddReadyzChecks(healthz.NamedCheck("etcd-readiness", s.checkEtcd))
	generic.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	resources := serverstorage.NewResourceConfig()
	resources.EnableVersions(apiextensionsv1.SchemeGroupVersion, apiregistrationv1.SchemeGroupVersion)
	for _, g := range s.groups {
		for _, v := range g.Versions {
			if v.OffByDefault {
				resources.DisableVersions(v.GroupVersion(g.Name)) // known, so that api/beta=true finds it
			} else {
				resources.EnableVersions(v.GroupVersion(g.Name))
			}
		}
	}
	// Versions that are gone are no error: client-go knows them too.
	if generic.MergedResourceConfig, err = resourceconfig.MergeAPIResourceConfigs(resources, s.options.RuntimeConfig, clientscheme.Scheme); err != nil {
		return nil, err
	}
	if err := s.options.Audit.ApplyTo(generic); err != nil {
		return nil, fmt.Errorf("auditing: %w", err)
	}
	if err := s.addBootstrapHooks(generic, client); err != nil {
		return nil, err
	}
	resolver, err := s.newResolver(shared)
	if err != nil {
		return nil, err
	}
	authResolver := webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, s.ownWebhookConfig(), generic.TracerProvider)
	webhooks := webhookinitializer.NewPluginInitializer(authResolver, resolver)
	tolerations := admission.TolerationSeconds{NotReady: *s.options.DefaultNotReadyTolerationSeconds, Unreachable: *s.options.DefaultUnreachableTolerationSeconds}
	if err := s.options.Admission.ApplyTo(generic, shared, client, dynamicClient, utilfeature.DefaultFeatureGate, generic.EffectiveVersion,
		webhooks, core.AdmissionInitializer(), initializer.NewAPIServerIDInitializer(generic.APIServerID), tolerations,
		&s.lateAdmission); err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	keys, err := s.access.tokens.WebServices(generic.ExternalAddress)
	if err != nil {
		return nil, err
	}
	// Last, for it begins to run at once.
	generic.FlowControl = utilflowcontrol.New(shared, client.FlowcontrolV1(), s.options.MaxRequestsInFlight)
	return &chain.Config{
		Generic:             generic,
		Informers:           shared,
		Storage:             s.backend,
		Groups:              s.groups,
		WebServices:         keys,
		ServiceResolver:     resolver,
		ProxyClientCertFile: s.access.proxyCertFile,
		ProxyClientKeyFile:  s.access.proxyKeyFile,
		AuthResolverWrapper: authResolver,
	}, nil
}

// ownAuthenticator knows the token with which the server calls itself. Requests are authenticated with it anyway, token reviews are to be too.
func (s *Server) ownAuthenticator() authenticator.Request {
	own := &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}
	return authenticatorfactory.NewFromTokens(map[string]*user.DefaultInfo{s.loopback.BearerToken: own}, s.access.tokens.Audiences())
}

// ownWebhookConfig is for webhooks at the service default/kubernetes, which lead back here, to an extension API server behind the
// aggregator. They may name a CA bundle, which goes with no transport but TLS.
func (s *Server) ownWebhookConfig() *rest.Config {
	return &rest.Config{
		BearerToken:     s.loopback.BearerToken,
		UserAgent:       s.loopback.UserAgent,
		TLSClientConfig: rest.TLSClientConfig{CAData: s.access.pki.CA.Cert},
	}
}

// watchRoles keeps what authorization needs in memory until ctx ends.
func (s *Server) watchRoles(ctx context.Context, client kubernetes.Interface) rbacauthorizer.Source {
	factory := informers.NewSharedInformerFactory(client, 0)
	source := rbacauthorizer.FromInformers(factory.Rbac().V1(), rbacauthorizer.FromClient(client.RbacV1()))
	factory.StartWithContext(ctx)
	s.run(func() {
		<-ctx.Done()
		factory.Shutdown()
	})
	return source
}
