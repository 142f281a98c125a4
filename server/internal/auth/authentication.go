package auth

import (
	"errors"
	"fmt"

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
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// Authentication configures which credentials are accepted. The zero value of a field disables one
// kind.
type Authentication struct {
	// ClientCA verifies client certificates. The common name is the user, and the organizations are
	// the groups.
	ClientCA dynamiccertificates.CAContentProvider
	// RequestHeader trusts proxies that name the user in request headers.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
	// TokenFile is a CSV file of tokens: token,user,uid,"group1,group2".
	TokenFile string
	// ServiceAccounts verifies service account tokens.
	ServiceAccounts authenticator.Token
	// BootstrapTokens verifies bootstrap tokens.
	BootstrapTokens authenticator.Token
	// Issuers verifies the tokens of other issuers.
	Issuers authenticator.Token
	// Webhook asks about tokens that nothing else accepts.
	Webhook authenticator.Token
	// Audiences are the audiences of the API server. A token without audiences is valid for it.
	Audiences []string
	// Anonymous accepts requests without credentials as requests of system:anonymous. Its
	// conditions restrict this to some paths.
	Anonymous *apiserver.AnonymousAuthConfig
}

// New returns an authenticator that tries headers, the certificate and the token, in this order.
func (a Authentication) New() (authenticator.Request, error) {
	var requests []authenticator.Request
	if h := a.RequestHeader; h != nil {
		proxies := headerrequest.NewDynamicVerifyOptionsSecure(h.CAContentProvider.VerifyOptions,
			h.AllowedClientNames, h.UsernameHeaders, h.UIDHeaders, h.GroupHeaders, h.ExtraHeaderPrefixes)
		requests = append(requests, authenticator.WrapAudienceAgnosticRequest(a.Audiences,
			named{proxies, h.UsernameHeaders}))
	}
	if a.ClientCA != nil {
		requests = append(requests, newVerified(x509.NewDynamic(a.ClientCA.VerifyOptions,
			x509.CommonNameUserConversion)))
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
		return nil, errors.New("no authentication method is enabled: allow client certificates, " +
			"tokens or anonymous requests")
	case len(requests) == 0:
		return anonymous.NewAuthenticator(a.Anonymous.Conditions), nil
	}
	all := group.NewAuthenticatedGroupAdder(union.New(requests...))
	if nameless {
		// Invalid credentials are an error, missing credentials are not.
		all = union.NewFailOnError(all, anonymous.NewAuthenticator(a.Anonymous.Conditions))
	}
	return all, nil
}

// token returns the authenticator for tokens, or nil if no tokens are accepted.
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
	if a.BootstrapTokens != nil {
		tokens = append(tokens,
			authenticator.WrapAudienceAgnosticToken(a.Audiences, a.BootstrapTokens))
	}
	// The issuers and the webhook come last, because asking them takes long.
	for _, external := range []authenticator.Token{a.Issuers, a.Webhook} {
		if external != nil {
			tokens = append(tokens, external)
		}
	}
	if len(tokens) == 0 {
		return nil, nil
	}
	return tokenunion.New(tokens...), nil
}
