package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/auth/bootstraptoken"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
	"github.com/kinproc/kinproc/server/internal/auth/serviceaccount"
	"github.com/kinproc/kinproc/server/internal/datadir"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// Access holds the authenticator and the authorizer, and the certificates and keys that they use.
type Access struct {
	PKI *pki.PKI
	// ClientCA are the authorities that are accepted for clients.
	ClientCA      dynamiccertificates.CAContentProvider
	RequestHeader *authenticatorfactory.RequestHeaderConfig
	// ProxyCertFile and ProxyKeyFile identify the aggregator to extension API servers.
	ProxyCertFile, ProxyKeyFile string
	// ProxyCertKept says that nobody changes these files while the control plane runs.
	ProxyCertKept bool

	Tokens        *serviceaccount.Tokens
	Authenticator authenticator.Request
	Authorizer    *Authorizer

	config  Config
	proxyCA dynamiccertificates.CAContentProvider
	// own is the control plane's own serving certificate.
	own *ownCertificate
	// serving is the pair of files with another serving certificate. It is empty by default.
	serving certificateFiles
}

// Open makes the certificates that are missing, the authenticator and the authorizer. They read
// objects through the API server itself.
func Open(c Config, s *stopper.Stopper) (_ *Access, err error) {
	a := &Access{config: c}
	certificates := pki.Options{Names: c.Hosts, Shared: c.PKIDir}
	if a.serving, err = c.servingFiles(); err != nil {
		return nil, err
	}
	if a.serving.cert != "" {
		certificates.Names = append(slices.Clone(c.Hosts),
			genericapiserver.LoopbackClientServerNameOverride)
	}
	if c.PKIDir != "" {
		if err := datadir.ClaimKeys(c.PKIDir); err != nil {
			return nil, c.Names.Wrong("PKIDir", "%w", err)
		}
	}
	kept := ""
	if c.Directory.Kept {
		kept = c.Directory.PKI()
		a.PKI, err = pki.Ensure(kept, certificates)
	} else {
		a.PKI, err = pki.New(certificates)
	}
	if err != nil {
		return nil, err
	}
	if a.own, err = newOwnCertificate(a.PKI, kept, certificates, a.ServerName()); err != nil {
		return nil, err
	}
	if err := a.trust(); err != nil {
		return nil, err
	}
	if err := a.identifyProxy(); err != nil {
		return nil, err
	}
	return a, a.decide(s)
}

// trust sets up the certificate authorities that are accepted: those for clients, and those for
// proxies that name users in headers.
func (a *Access) trust() (err error) {
	c := &a.config
	if a.ClientCA, err = dynamiccertificates.NewStaticCAContent("client-ca",
		a.PKI.CA.Cert); err != nil {
		return err
	}
	if c.ClientCAFile != "" {
		further, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-file", c.ClientCAFile)
		if err != nil {
			return c.Names.Wrong("ClientCAFile", "%w", err)
		}
		a.ClientCA = dynamiccertificates.NewUnionCAContentProvider(a.ClientCA, further)
	}
	r := c.RequestHeader
	if r.ClientCAFile != "" {
		a.proxyCA, err = dynamiccertificates.NewDynamicCAContentFromFile("requestheader-client-ca-file",
			r.ClientCAFile)
		if err == nil && len(r.AllowedNames) == 0 {
			err = a.keepProxiesApart()
		}
	} else {
		a.proxyCA, err = dynamiccertificates.NewStaticCAContent("requestheader-client-ca",
			a.PKI.FrontProxyCA.Cert)
		if len(r.AllowedNames) == 0 {
			r.AllowedNames = []string{pki.ProxyUser}
		}
	}
	if err != nil {
		return c.Names.Wrong("RequestHeader.ClientCAFile", "%w", err)
	}
	a.RequestHeader = &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   a.proxyCA,
		UsernameHeaders:     headerrequest.StaticStringSlice(r.UsernameHeaders),
		UIDHeaders:          headerrequest.StaticStringSlice(r.UIDHeaders),
		GroupHeaders:        headerrequest.StaticStringSlice(r.GroupHeaders),
		ExtraHeaderPrefixes: headerrequest.StaticStringSlice(r.ExtraHeaderPrefixes),
		AllowedClientNames:  headerrequest.StaticStringSlice(r.AllowedNames),
	}
	return nil
}

// identifyProxy sets the files with the aggregator's client certificate and key. The aggregator
// reads them from files only, so a pair that was generated in memory is written to the directory.
func (a *Access) identifyProxy() error {
	c, dir := &a.config, a.config.Directory.PKI()
	if c.ProxyClientCertFile != "" {
		if _, err := tls.LoadX509KeyPair(c.ProxyClientCertFile, c.ProxyClientKeyFile); err != nil {
			return c.Names.Wrong("ProxyClientCertFile", "%w", err)
		}
		a.ProxyCertFile, a.ProxyKeyFile = c.ProxyClientCertFile, c.ProxyClientKeyFile
		return nil
	}
	a.ProxyCertFile, a.ProxyKeyFile = filepath.Join(dir, "front-proxy-client.crt"), filepath.Join(dir,
		"front-proxy-client.key")
	a.ProxyCertKept = true
	if c.Directory.Kept {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(a.ProxyCertFile, a.PKI.Proxy.Cert, 0o600),
		os.WriteFile(a.ProxyKeyFile, a.PKI.Proxy.Key, 0o600))
}

// decide creates the authenticator and the authorizer. Roles are not watched until the first
// request of a user who is not a member of system:masters.
func (a *Access) decide(s *stopper.Stopper) error {
	c, client := &a.config, a.config.Client
	tokens, err := a.newTokens()
	if err != nil {
		return err
	}
	a.Tokens = tokens
	others, err := newExternal(c, tokens.Audiences(), s)
	if err != nil {
		return err
	}
	a.Authenticator, err = Authentication{
		ClientCA:        a.ClientCA,
		RequestHeader:   a.RequestHeader,
		TokenFile:       c.TokenAuthFile,
		ServiceAccounts: tokens.Authenticator(serviceaccount.FromClient(client.CoreV1())),
		BootstrapTokens: c.bootstrapTokens(),
		Issuers:         others.issuers,
		Webhook:         others.webhook,
		Audiences:       tokens.Audiences(),
		Anonymous:       others.anonymous,
	}.New()
	if err != nil {
		return err
	}
	a.Authorizer, err = newAuthorizer(c, Authorization{
		Roles: rbacauthorizer.Lazily(func() rbacauthorizer.Source {
			return watchRoles(s.Context(), client, c.Roles)
		}),
		Client: client,
	}, s)
	return err
}

// bootstrapTokens returns the authenticator of bootstrap tokens, or nil if they are not accepted.
func (c *Config) bootstrapTokens() authenticator.Token {
	if !c.EnableBootstrapTokenAuth {
		return nil
	}
	return bootstraptoken.New(c.Client.CoreV1())
}

func (a *Access) newTokens() (*serviceaccount.Tokens, error) {
	c := a.config.ServiceAccounts
	options := serviceaccount.Options{
		Issuers:     c.Issuers,
		Audiences:   c.Audiences,
		Key:         a.PKI.ServiceAccountKey,
		MaxLifetime: c.MaxExpiration,
		Extend:      true,
		KeysURI:     c.JWKSURI,
	}
	var err error
	if c.SigningKeyFile != "" {
		if options.Key, err = serviceaccount.PrivateKey(c.SigningKeyFile); err != nil {
			return nil, err
		}
	}
	if options.PublicKeys, err = serviceaccount.PublicKeys(c.KeyFiles...); err != nil {
		return nil, err
	}
	return serviceaccount.New(options)
}

// CheckServingCertificate is the health check of the certificate by which clients on this machine
// know the server.
func (a *Access) CheckServingCertificate(*http.Request) error {
	if ends := a.own.ends(); time.Now().After(ends) {
		return fmt.Errorf("the serving certificate expired at %s; restart to make another one",
			ends.Format(time.RFC3339))
	}
	return nil
}

// Apply configures the servers of the chain. It is not a method, because whoever uses Access would
// read the types that the configuration has, and compile a second longer.
func Apply(a *Access, generic *genericapiserver.Config) error {
	generic.SecureServing = &genericapiserver.SecureServingInfo{
		Listener: a.config.Listener,
		Cert:     a.own,
		// The handshake asks for certificates of both authorities. Authentication decides what each
		// certificate is good for.
		ClientCA: dynamiccertificates.NewUnionCAContentProvider(a.ClientCA, a.proxyCA),
	}
	if err := a.serve(generic.SecureServing); err != nil {
		return err
	}
	generic.Authentication = genericapiserver.AuthenticationInfo{
		APIAudiences:        a.Tokens.Audiences(),
		Authenticator:       a.Authenticator,
		RequestHeaderConfig: a.RequestHeader,
	}
	generic.Authorization.Authorizer = a.config.forRequests(a.Authorizer)
	generic.RuleResolver = a.Authorizer
	return nil
}

// watchRoles keeps the roles and bindings in memory until ctx ends.
func watchRoles(
	ctx context.Context, client kubernetes.Interface,
	roles func() (rbacinformers.Interface, func(context.Context)),
) rbacauthorizer.Source {
	informers, start := roles()
	source := rbacauthorizer.FromInformers(informers, rbacauthorizer.FromClient(client.RbacV1()))
	start(ctx)
	return source
}
