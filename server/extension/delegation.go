package extension

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	// The control plane publishes in this config map how its aggregator identifies itself.
	authenticationNamespace = metav1.NamespaceSystem
	authenticationConfigMap = "extension-apiserver-authentication"
	// clientAuthority is the key of the authority that signs the certificates of clients.
	clientAuthority = "client-ca-file"

	// decisionTTL is how long decisions of the control plane are cached, as in other extension API
	// servers.
	decisionTTL = 10 * time.Second
	// reviewTimeout is how long the control plane may take for one.
	reviewTimeout = 10 * time.Second

	// The control plane is asked about most requests, so these limit the server itself.
	clientQPS, clientBurst = 200, 400
)

// access authenticates and authorizes users. The aggregator names a user in
// headers; a direct client has a client certificate of the control plane, or a token, which the
// control plane reviews. The control plane also decides what users may do.
type access struct {
	client  kubernetes.Interface // its requests may last
	reviews kubernetes.Interface

	clients *dynamiccertificates.ConfigMapCAController
	proxies *dynamiccertificates.ConfigMapCAController
	headers *headerrequest.RequestHeaderAuthRequestController
	// publishesClients is whether the control plane publishes the authority of its clients.
	publishesClients bool

	authorizer authorizer.Authorizer
	security   *spec.SecurityDefinitions
}

func newAccess(config *rest.Config) (*access, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = clientQPS, clientBurst
	a := &access{}
	var err error
	if a.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("RESTConfig: %w", err)
	}
	config = rest.CopyConfig(config)
	config.Timeout = reviewTimeout
	if a.reviews, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("RESTConfig: %w", err)
	}
	if a.clients, err = a.authority(clientAuthority); err != nil {
		return nil, err
	}
	if a.proxies, err = a.authority("requestheader-client-ca-file"); err != nil {
		return nil, err
	}
	a.headers = headerrequest.NewRequestHeaderAuthRequestController(
		authenticationConfigMap, authenticationNamespace, a.client,
		"requestheader-username-headers", "requestheader-uid-headers",
		"requestheader-group-headers", "requestheader-extra-headers-prefix",
		"requestheader-allowed-names")
	a.authorizer, err = a.newAuthorizer()
	return a, err
}

// authority returns the authority that is published under the given key.
func (a *access) authority(key string) (*dynamiccertificates.ConfigMapCAController, error) {
	return dynamiccertificates.NewDynamicCAFromConfigMapController(
		key, authenticationNamespace, authenticationConfigMap, key, a.client)
}

func (a *access) newAuthorizer() (authorizer.Authorizer, error) {
	health, err := path.NewAuthorizer([]string{"/healthz", "/readyz", "/livez"})
	if err != nil {
		return nil, err
	}
	delegated, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: a.reviews.AuthorizationV1(),
		AllowCacheTTL:             decisionTTL,
		DenyCacheTTL:              decisionTTL,
		WebhookRetryBackoff:       genericoptions.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return nil, err
	}
	return union.New(
		union.NamedAuthorizer{
			AuthorizerName: "masters",
			Authorizer:     authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup),
		},
		union.NamedAuthorizer{AuthorizerName: "health", Authorizer: health},
		union.NamedAuthorizer{AuthorizerName: "control-plane", Authorizer: delegated},
	)
}

// still hides the method Run of an authority, which the server would start and not wait for.
type still struct {
	dynamiccertificates.CAContentProvider
}

// applyTo sets the authentication and authorization of config.
func (a *access) applyTo(config *genericapiserver.Config) error {
	proxies, clients := still{a.proxies}, still{a.clients}
	header := &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   proxies,
		UsernameHeaders:     headerrequest.StringSliceProviderFunc(a.headers.UsernameHeaders),
		UIDHeaders:          headerrequest.StringSliceProviderFunc(a.headers.UIDHeaders),
		GroupHeaders:        headerrequest.StringSliceProviderFunc(a.headers.GroupHeaders),
		ExtraHeaderPrefixes: headerrequest.StringSliceProviderFunc(a.headers.ExtraHeaderPrefixes),
		AllowedClientNames:  headerrequest.StringSliceProviderFunc(a.headers.AllowedClientNames),
	}
	authenticator, security, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                          &apiserver.AnonymousAuthConfig{Enabled: true},
		TokenAccessReviewClient:            a.reviews.AuthenticationV1(),
		TokenAccessReviewTimeout:           reviewTimeout,
		WebhookRetryBackoff:                genericoptions.DefaultAuthWebhookRetryBackoff(),
		CacheTTL:                           decisionTTL,
		ClientCertificateCAContentProvider: clients,
		RequestHeaderConfig:                header,
	}.New()
	if err != nil {
		return fmt.Errorf("authentication: %w", err)
	}
	a.security = security
	config.Authentication.Authenticator = authenticator
	config.Authentication.RequestHeaderConfig = header
	config.Authorization.Authorizer = a.authorizer
	for _, authority := range []dynamiccertificates.CAContentProvider{clients, proxies} {
		if err := config.Authentication.ApplyClientCert(authority, config.SecureServing); err != nil {
			return fmt.Errorf("authentication: %w", err)
		}
	}
	return nil
}

// published reads what the control plane publishes. It returns an error unless the server may read
// how the aggregator identifies itself.
func (a *access) published(ctx context.Context) error {
	config, err := a.reviews.CoreV1().ConfigMaps(authenticationNamespace).Get(ctx,
		authenticationConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: bind the role extension-apiserver-authentication-reader of namespace %s "+
			"to the user of RESTConfig", err, authenticationNamespace)
	case err != nil:
		return fmt.Errorf("read how the control plane authenticates: %w", err)
	}
	a.publishesClients = config.Data[clientAuthority] != ""
	return nil
}

// run follows what the control plane publishes until ctx is done. The returned function waits for
// the end.
func (a *access) run(ctx context.Context) (wait func()) {
	var running sync.WaitGroup
	for _, run := range []func(context.Context, int){a.clients.Run, a.proxies.Run, a.headers.Run} {
		running.Go(func() { run(ctx, 1) })
	}
	return running.Wait
}

// check returns a check that fails until the server can tell who comes through the aggregator, and
// who comes directly.
func (a *access) check() healthz.HealthChecker {
	return healthz.NamedCheck("authorities", func(*http.Request) error {
		if _, ok := a.proxies.VerifyOptions(); !ok || len(a.headers.UsernameHeaders()) == 0 {
			return errors.New("the control plane's aggregator is not known yet")
		}
		if _, ok := a.clients.VerifyOptions(); !ok && a.publishesClients {
			return errors.New("the authority of the control plane's clients is not known yet")
		}
		return nil
	})
}
