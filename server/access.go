package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/auth/bootstraptoken"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
	"github.com/kinproc/kinproc/server/internal/auth/serviceaccount"
	"github.com/kinproc/kinproc/server/internal/controllers/kubernetesservice"
	"github.com/kinproc/kinproc/server/internal/datadir"
	"github.com/kinproc/kinproc/server/internal/informers"
)

// access holds the authenticator and the authorizer, and the certificates and keys that they use.
type access struct {
	pki           *pki.PKI
	clientCA      dynamiccertificates.CAContentProvider
	proxyCA       dynamiccertificates.CAContentProvider
	requestHeader *authenticatorfactory.RequestHeaderConfig
	// proxyCertFile and proxyKeyFile identify the aggregator to extension API servers.
	proxyCertFile, proxyKeyFile string

	// servingEnds is when the own serving certificate expires.
	servingEnds time.Time
	// serving is the pair of files with another serving certificate. It is empty by default.
	serving certificateFiles

	tokens        *serviceaccount.Tokens
	authenticator authenticator.Request
	authorizer    *auth.Authorizer
}

// newAccess creates the certificates for the plane's listen address, the authenticator and the
// authorizer.
func newAccess(p *plane) (*access, error) {
	host, _, err := net.SplitHostPort(p.listener.Addr().String())
	if err != nil {
		return nil, err
	}
	a := &access{}
	po := pki.Options{Names: []string{host, p.services.allocator.FirstIP().String()}}
	if ip := net.ParseIP(host); ip.IsUnspecified() {
		po.Names = append(po.Names, kubernetesservice.AdvertiseAddress(ip).String())
	}
	if advertised := p.options.AdvertiseAddress; advertised != "" {
		po.Names = append(po.Names, advertised)
	}
	if a.serving, err = p.servingFiles(); err != nil {
		return nil, err
	}
	if a.serving.cert != "" {
		po.Names = append(po.Names, genericapiserver.LoopbackClientServerNameOverride)
	}
	if po.Shared = p.options.PKIDir; po.Shared != "" {
		if err := datadir.ClaimKeys(po.Shared); err != nil {
			return nil, p.options.wrong("PKIDir", "pki-dir", "%w", err)
		}
	}
	dir := p.dir.PKI()
	if p.options.DataDir == "" {
		a.pki, err = pki.New(po)
	} else {
		a.pki, err = pki.Ensure(dir, po)
	}
	if err != nil {
		return nil, err
	}
	serving, err := cert.ParseCertsPEM(a.pki.Serving.Cert)
	if err != nil {
		return nil, err
	}
	a.servingEnds = serving[0].NotAfter
	if err := a.trust(p.options); err != nil {
		return nil, err
	}
	if err := a.identifyProxy(p.options, dir); err != nil {
		return nil, err
	}
	return a, a.judge(p)
}

// trust sets up the certificate authorities that are accepted: those for clients, and those for
// proxies that name users in headers.
func (a *access) trust(o *Options) (err error) {
	if a.clientCA, err = dynamiccertificates.NewStaticCAContent("client-ca",
		a.pki.CA.Cert); err != nil {
		return err
	}
	if o.ClientCAFile != "" {
		further, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-file", o.ClientCAFile)
		if err != nil {
			return o.wrong("ClientCAFile", "client-ca-file", "%w", err)
		}
		a.clientCA = dynamiccertificates.NewUnionCAContentProvider(a.clientCA, further)
	}
	r := o.RequestHeader
	if r.ClientCAFile != "" {
		a.proxyCA, err = dynamiccertificates.NewDynamicCAContentFromFile("requestheader-client-ca-file",
			r.ClientCAFile)
		if err == nil && len(r.AllowedNames) == 0 {
			err = a.keepProxiesApart(o)
		}
	} else {
		a.proxyCA, err = dynamiccertificates.NewStaticCAContent("requestheader-client-ca",
			a.pki.FrontProxyCA.Cert)
		orDefault(&r.AllowedNames, pki.ProxyUser)
	}
	if err != nil {
		return o.wrong("RequestHeader.ClientCAFile", "requestheader-client-ca-file", "%w", err)
	}
	a.requestHeader = &authenticatorfactory.RequestHeaderConfig{
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
// reads them from files only, so a pair that was generated in memory is written to dir.
func (a *access) identifyProxy(o *Options, dir string) error {
	if o.ProxyClientCertFile != "" {
		if _, err := tls.LoadX509KeyPair(o.ProxyClientCertFile, o.ProxyClientKeyFile); err != nil {
			return o.wrong("ProxyClientCertFile", "proxy-client-cert-file", "%w", err)
		}
		a.proxyCertFile, a.proxyKeyFile = o.ProxyClientCertFile, o.ProxyClientKeyFile
		return nil
	}
	a.proxyCertFile, a.proxyKeyFile = filepath.Join(dir, "front-proxy-client.crt"), filepath.Join(dir,
		"front-proxy-client.key")
	if o.DataDir != "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(a.proxyCertFile, a.pki.Proxy.Cert, 0o600),
		os.WriteFile(a.proxyKeyFile, a.pki.Proxy.Key, 0o600))
}

// judge creates the authenticator and the authorizer, which read objects through the API server
// itself. Roles are not watched until the first request of a user who is not a member of
// system:masters.
func (a *access) judge(p *plane) error {
	o, client := p.options, p.self.client
	tokens, err := a.newTokens(o)
	if err != nil {
		return err
	}
	a.tokens = tokens
	others, err := newExternal(p, tokens.Audiences())
	if err != nil {
		return err
	}
	a.authenticator, err = auth.Authentication{
		ClientCA:        a.clientCA,
		RequestHeader:   a.requestHeader,
		TokenFile:       o.TokenAuthFile,
		ServiceAccounts: tokens.Authenticator(serviceaccount.FromClient(client.CoreV1())),
		BootstrapTokens: bootstrapTokens(o, client),
		Issuers:         others.issuers,
		Webhook:         others.webhook,
		Audiences:       tokens.Audiences(),
		Anonymous:       others.anonymous,
	}.New()
	if err != nil {
		return err
	}
	a.authorizer, err = newAuthorizer(p, auth.Authorization{
		Roles: rbacauthorizer.Lazily(func() rbacauthorizer.Source {
			return watchRoles(p.stopper.Context(), client, p.allInformers)
		}),
		Client: client,
	})
	return err
}

// bootstrapTokens returns the authenticator of bootstrap tokens, or nil if they are not accepted.
func bootstrapTokens(o *Options, client kubernetes.Interface) authenticator.Token {
	if !o.EnableBootstrapTokenAuth {
		return nil
	}
	return bootstraptoken.New(client.CoreV1())
}

func (a *access) newTokens(o *Options) (*serviceaccount.Tokens, error) {
	options := serviceaccount.Options{
		Issuers:     o.ServiceAccountIssuer,
		Audiences:   o.APIAudiences,
		Key:         a.pki.ServiceAccountKey,
		MaxLifetime: o.ServiceAccountMaxTokenExpiration,
		Extend:      true,
		KeysURI:     o.ServiceAccountJWKSURI,
	}
	var err error
	if o.ServiceAccountSigningKeyFile != "" {
		if options.Key, err = serviceaccount.PrivateKey(o.ServiceAccountSigningKeyFile); err != nil {
			return nil, err
		}
	}
	if options.PublicKeys, err = serviceaccount.PublicKeys(o.ServiceAccountKeyFiles...); err != nil {
		return nil, err
	}
	return serviceaccount.New(options)
}

// checkServingCertificate is the health check of the certificate by which clients on this machine
// know the server.
func (a *access) checkServingCertificate(*http.Request) error {
	if time.Now().After(a.servingEnds) {
		return fmt.Errorf("the serving certificate expired at %s; restart to make another one",
			a.servingEnds.Format(time.RFC3339))
	}
	return nil
}

// applyTo configures the servers of the chain.
func (a *access) applyTo(generic *genericapiserver.Config, o *Options, l net.Listener) error {
	own, err := dynamiccertificates.NewStaticCertKeyContent("serving", a.pki.Serving.Cert,
		a.pki.Serving.Key)
	if err != nil {
		return err
	}
	generic.SecureServing = &genericapiserver.SecureServingInfo{
		Listener: l,
		Cert:     own,
		// The handshake asks for certificates of both authorities. Authentication decides what each
		// certificate is good for.
		ClientCA: dynamiccertificates.NewUnionCAContentProvider(a.clientCA, a.proxyCA),
	}
	if err := a.serve(generic.SecureServing, o); err != nil {
		return err
	}
	generic.Authentication = genericapiserver.AuthenticationInfo{
		APIAudiences:        a.tokens.Audiences(),
		Authenticator:       a.authenticator,
		RequestHeaderConfig: a.requestHeader,
	}
	generic.Authorization.Authorizer = o.forRequests(a.authorizer)
	generic.RuleResolver = a.authorizer
	return nil
}

// watchRoles keeps the roles and bindings in memory until ctx ends.
func watchRoles(
	ctx context.Context, client kubernetes.Interface, all *informers.Set,
) rbacauthorizer.Source {
	factory := all.Factory()
	source := rbacauthorizer.FromInformers(factory.Rbac().V1(),
		rbacauthorizer.FromClient(client.RbacV1()))
	factory.StartWithContext(ctx)
	return source
}
