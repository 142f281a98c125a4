package auth

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	webhooktoken "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
)

// webhookDelay is the time before the first repetition of a call to a webhook that failed.
const webhookDelay = 500 * time.Millisecond

// Authentication says which credentials are accepted. Each field's zero value leaves one kind out.
type Authentication struct {
	// ClientCA signs client certificates: the common name is the user, the organizations are the groups.
	ClientCA dynamiccertificates.CAContentProvider
	// RequestHeader trusts proxies to say in headers whom they speak for; see [RequestHeader].
	RequestHeader *authenticatorfactory.RequestHeaderConfig
	// TokenFile is a CSV file of tokens: token,user,uid,"group1,group2".
	TokenFile string
	// ServiceAccounts verifies service account tokens.
	ServiceAccounts authenticator.Token
	// WebhookConfigFile is a kubeconfig of a service that reviews tokens (authentication.k8s.io/v1 TokenReview).
	WebhookConfigFile string
	// WebhookCacheTTL is for how long the service's answers are believed.
	WebhookCacheTTL time.Duration
	// Audiences are what the API server calls itself; tokens that name no audience are for it.
	Audiences []string
	// CacheTTL is for how long a token that was accepted is accepted unseen. Zero verifies on every request, so that a token ends with
	// what it is bound to.
	CacheTTL time.Duration
	// Anonymous lets requests without credentials be those of system:anonymous, if conditions are given on some paths only.
	Anonymous *apiserver.AnonymousAuthConfig
}

// New makes an authenticator that tries header, certificate and token, in this order.
func (a Authentication) New() (authenticator.Request, error) {
	var requests []authenticator.Request
	if h := a.RequestHeader; h != nil {
		requests = append(requests, authenticator.WrapAudienceAgnosticRequest(a.Audiences, headerrequest.NewDynamicVerifyOptionsSecure(
			h.CAContentProvider.VerifyOptions, h.AllowedClientNames, h.UsernameHeaders, h.UIDHeaders, h.GroupHeaders, h.ExtraHeaderPrefixes,
		)))
	}
	if a.ClientCA != nil {
		requests = append(requests, x509.NewDynamic(a.ClientCA.VerifyOptions, x509.CommonNameUserConversion))
	}
	token, err := a.token()
	if err != nil {
		return nil, err
	}
	if token != nil {
		requests = append(requests, bearertoken.New(token), websocket.NewProtocolAuthenticator(token))
	}
	nameless := a.Anonymous != nil && a.Anonymous.Enabled
	switch {
	case len(requests) == 0 && !nameless:
		return nil, errors.New("nobody could authenticate: allow client certificates, tokens or anonymous requests")
	case len(requests) == 0:
		return anonymous.NewAuthenticator(a.Anonymous.Conditions), nil
	}
	all := group.NewAuthenticatedGroupAdder(union.New(requests...))
	if nameless {
		// Wrong credentials are an error; no credentials are not.
		all = union.NewFailOnError(all, anonymous.NewAuthenticator(a.Anonymous.Conditions))
	}
	return all, nil
}

// token is nil if no token is accepted.
func (a Authentication) token() (authenticator.Token, error) {
	var tokens []authenticator.Token
	if a.TokenFile != "" {
		file, err := tokenfile.NewCSV(a.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the token file %s: %w", a.TokenFile, err)
		}
		tokens = append(tokens, authenticator.WrapAudienceAgnosticToken(a.Audiences, file))
	}
	if a.ServiceAccounts != nil {
		tokens = append(tokens, a.ServiceAccounts)
	}
	if a.WebhookConfigFile != "" {
		config, err := webhookutil.LoadKubeconfig(a.WebhookConfigFile, nil)
		if err != nil {
			return nil, fmt.Errorf("read the kubeconfig of the token webhook: %w", err)
		}
		hook, err := webhooktoken.New(config, "v1", a.Audiences, webhookutil.DefaultRetryBackoffWithInitialDelay(webhookDelay))
		if err != nil {
			return nil, fmt.Errorf("set up the token webhook: %w", err)
		}
		tokens = append(tokens, tokencache.New(hook, false, a.WebhookCacheTTL, a.WebhookCacheTTL))
	}
	if len(tokens) == 0 {
		return nil, nil
	}
	all := tokenunion.New(tokens...)
	if a.CacheTTL > 0 {
		all = tokencache.New(all, true, a.CacheTTL, 0)
	}
	return all, nil
}

// RequestHeader trusts proxies whose client certificates ca signed, and of these only those with one of the common names if there are
// any, to send the headers that kube-apiserver's aggregator sends (X-Remote-User and so on). The provider may be one of files
// (dynamiccertificates.NewDynamicCAContentFromFile), which follows changes as long as somebody runs it.
func RequestHeader(ca dynamiccertificates.CAContentProvider, commonNames ...string) *authenticatorfactory.RequestHeaderConfig {
	return &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   ca,
		AllowedClientNames:  headerrequest.StaticStringSlice(commonNames),
		UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
		UIDHeaders:          headerrequest.StaticStringSlice{"X-Remote-Uid"},
		GroupHeaders:        headerrequest.StaticStringSlice{"X-Remote-Group"},
		ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
	}
}
