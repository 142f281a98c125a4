package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
	"github.com/kinproc/kinproc/server/internal/auth/serviceaccount"
	"github.com/kinproc/kinproc/server/internal/controllers/kubernetesservice"
)

// access is who may come in, and the certificates and keys for it.
type access struct {
	pki           *pki.PKI
	clientCA      dynamiccertificates.CAContentProvider
	proxyCA       dynamiccertificates.CAContentProvider
	requestHeader *authenticatorfactory.RequestHeaderConfig
	// proxyCertFile and proxyKeyFile identify the aggregator to extension API servers.
	proxyCertFile, proxyKeyFile string

	tokens        *serviceaccount.Tokens
	authenticator authenticator.Request
	authorizer    *auth.Authorizer
}

// newAccess makes the PKI for a server that listens at the given address and has the given service IP.
func newAccess(o *Options, dir string, listen net.Addr, serviceIP netip.Addr) (*access, error) {
	host, _, err := net.SplitHostPort(listen.String())
	if err != nil {
		return nil, err
	}
	a := &access{}
	po := pki.Options{Names: []string{host, serviceIP.String()}}
	if ip := net.ParseIP(host); ip.IsUnspecified() {
		po.Names = append(po.Names, kubernetesservice.AdvertiseAddress(ip).String())
	}
	dir = filepath.Join(dir, pkiDir)
	if o.DataDir == "" {
		a.pki, err = pki.New(po)
	} else {
		a.pki, err = pki.Ensure(dir, po)
	}
	if err != nil {
		return nil, err
	}
	if err := a.trust(o); err != nil {
		return nil, err
	}
	return a, a.identifyProxy(o, dir)
}

// trust makes the authorities whose certificates are accepted: those of clients, and those of proxies that name users in headers.
func (a *access) trust(o *Options) (err error) {
	if a.clientCA, err = dynamiccertificates.NewStaticCAContent("client-ca", a.pki.CA.Cert); err != nil {
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
		a.proxyCA, err = dynamiccertificates.NewDynamicCAContentFromFile("requestheader-client-ca-file", r.ClientCAFile)
	} else {
		a.proxyCA, err = dynamiccertificates.NewStaticCAContent("requestheader-client-ca", a.pki.FrontProxyCA.Cert)
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

// identifyProxy finds the files with the aggregator's certificate and key. The aggregator takes files only, so those made in memory are
// written to dir.
func (a *access) identifyProxy(o *Options, dir string) error {
	if o.ProxyClientCertFile != "" {
		if _, err := tls.LoadX509KeyPair(o.ProxyClientCertFile, o.ProxyClientKeyFile); err != nil {
			return o.wrong("ProxyClientCertFile", "proxy-client-cert-file", "%w", err)
		}
		a.proxyCertFile, a.proxyKeyFile = o.ProxyClientCertFile, o.ProxyClientKeyFile
		return nil
	}
	a.proxyCertFile, a.proxyKeyFile = filepath.Join(dir, "front-proxy-client.crt"), filepath.Join(dir, "front-proxy-client.key")
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

// connect makes the parts that read objects through the server itself. Roles are watched from when somebody comes who is not a member of
// system:masters.
func (a *access) connect(o *Options, client kubernetes.Interface, roles func() rbacauthorizer.Source) error {
	tokens, err := a.newTokens(o)
	if err != nil {
		return err
	}
	a.tokens = tokens
	a.authenticator, err = auth.Authentication{
		ClientCA:        a.clientCA,
		RequestHeader:   a.requestHeader,
		TokenFile:       o.TokenAuthFile,
		ServiceAccounts: tokens.Authenticator(serviceaccount.FromClient(client.CoreV1())),
		Audiences:       tokens.Audiences(),
		Anonymous:       &apiserver.AnonymousAuthConfig{Enabled: !o.DisableAnonymous},
	}.New()
	if err != nil {
		return err
	}
	a.authorizer, err = auth.Authorization{
		Modes:  o.AuthorizationModes,
		Roles:  rbacauthorizer.Lazily(roles),
		Client: client,
	}.New()
	return err
}

func (a *access) newTokens(o *Options) (*serviceaccount.Tokens, error) {
	options := serviceaccount.Options{
		Issuers: o.ServiceAccountIssuer, Audiences: o.APIAudiences, Key: a.pki.ServiceAccountKey, MaxLifetime: o.ServiceAccountMaxTokenExpiration,
		Extend: true, KeysURI: o.ServiceAccountJWKSURI,
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

// applyTo configures the servers of the chain.
func (a *access) applyTo(generic *genericapiserver.Config, l net.Listener) error {
	cert, err := dynamiccertificates.NewStaticCertKeyContent("serving", a.pki.Serving.Cert, a.pki.Serving.Key)
	if err != nil {
		return err
	}
	generic.SecureServing = &genericapiserver.SecureServingInfo{
		Listener: l,
		Cert:     cert,
		// The handshake asks for certificates of both; what one is good for is authentication's to say.
		ClientCA: dynamiccertificates.NewUnionCAContentProvider(a.clientCA, a.proxyCA),
	}
	generic.Authentication = genericapiserver.AuthenticationInfo{
		APIAudiences:        a.tokens.Audiences(),
		Authenticator:       a.authenticator,
		RequestHeaderConfig: a.requestHeader,
	}
	generic.Authorization.Authorizer = a.authorizer
	generic.RuleResolver = a.authorizer
	return nil
}

// RESTConfig returns a client configuration for an administrator, a member of system:masters, with
// no client-side rate limit. The caller may change it. RESTConfig panics if Start has not succeeded.
func (s *Server) RESTConfig() *rest.Config {
	s.mustBeStarted("RESTConfig")
	return s.restConfig(s.access.pki.Admin)
}

// Kubeconfig returns what RESTConfig returns, as a kubeconfig. It panics if Start has not
// succeeded.
func (s *Server) Kubeconfig() *clientcmdapi.Config {
	s.mustBeStarted("Kubeconfig")
	p := s.access.pki
	return pki.Kubeconfig("kinproc", s.URL(), p.CA.Cert, pki.AdminUser, p.Admin.AuthInfo())
}

// User returns a client configuration for the named user, a member of groups. RBAC says what the
// user may do. User returns an error if Start has not succeeded.
func (s *Server) User(name string, groups ...string) (*rest.Config, error) {
	if !s.ready.Load() {
		return nil, errors.New(beforeStart("User"))
	}
	pair, err := s.access.pki.CA.Client(name, groups, 0)
	if err != nil {
		return nil, fmt.Errorf("certificate of user %q: %w", name, err)
	}
	return s.restConfig(pair), nil
}

func (s *Server) restConfig(user pki.Pair) *rest.Config {
	return &rest.Config{
		Host:            s.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: s.access.pki.CA.Cert, CertData: user.Cert, KeyData: user.Key},
		QPS:             -1,
	}
}
