package auth

import (
	"context"
	"net"
	"time"

	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/datadir"
	"github.com/kinproc/kinproc/server/internal/option"
)

import ()

// Config configures who may do what, and how the server shows who it is. The fields have the
// meaning of those of server.Options.
type Config struct {
	Directory *datadir.Dir
	PKIDir    string
	// Hosts are the names and addresses in the serving certificate of the own authority.
	Hosts    []string
	Listener net.Listener
	// AdvertiseAddress and ServiceIP are in the certificate that is made in CertDir, too.
	AdvertiseAddress, ServiceIP    string
	TLSCertFile, TLSPrivateKeyFile string
	CertDir, TLSMinVersion         string
	TLSCipherSuites                []string

	ClientCAFile                            string
	RequestHeader                           RequestHeader
	ProxyClientCertFile, ProxyClientKeyFile string
	TokenAuthFile                           string
	EnableBootstrapTokenAuth                bool
	// Anonymous is true if requests without credentials are accepted, and DisableAnonymous if the
	// options say that they are not.
	Anonymous, DisableAnonymous bool
	ServiceAccounts             ServiceAccounts
	OIDC                        OIDC
	AuthenticationConfigFile    string
	TokenWebhook                TokenWebhook

	AuthorizationModes      []string
	AuthorizationWebhook    AuthorizationWebhook
	AuthorizationConfigFile string
	ReadOnly                bool

	// Client reads through the API server itself.
	Client kubernetes.Interface
	// Roles makes the informers of roles and bindings, and returns what starts them.
	Roles func() (informers rbacinformers.Interface, start func(context.Context))
	Names option.Names
}

// ServiceAccounts configures the tokens of service accounts.
type ServiceAccounts struct {
	Issuers, Audiences, KeyFiles []string
	SigningKeyFile, JWKSURI      string
	MaxExpiration                time.Duration
}

// RequestHeader configures the proxies that may name the user of a request.
type RequestHeader struct {
	ClientCAFile                                                   string
	AllowedNames                                                   []string
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefixes []string
}

// OIDC configures an OpenID Connect provider.
type OIDC struct {
	IssuerURL, ClientID       string
	CAFile                    string
	UsernameClaim             string
	UsernamePrefix            string
	GroupsClaim, GroupsPrefix string
	SigningAlgs               []string
	RequiredClaims            map[string]string
}

// TokenWebhook configures the webhook that is asked who the bearer of a token is.
type TokenWebhook struct {
	ConfigFile string
	Version    string
	CacheTTL   time.Duration
}

// AuthorizationWebhook configures the webhook of the mode Webhook.
type AuthorizationWebhook struct {
	ConfigFile                     string
	Version                        string
	AuthorizedTTL, UnauthorizedTTL time.Duration
}
