package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/admission/quota"
	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/connections"
	"github.com/kinproc/kinproc/server/internal/controllers/kubernetesservice"
	"github.com/kinproc/kinproc/server/internal/datadir"
	"github.com/kinproc/kinproc/server/internal/etcdconn"
	"github.com/kinproc/kinproc/server/internal/informers"
	"github.com/kinproc/kinproc/server/internal/requests"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

var (
	errStarted = errors.New("start: a control plane starts once, create another one with New")
	errStopped = errors.New("stopped while starting")
)

// plane holds the parts of a control plane, in the order in which Start creates them.
type plane struct {
	options *Options
	stopper *stopper.Stopper

	listener *connections.Listener
	dir      *datadir.Dir
	etcd     *etcdconn.Conn
	// encryption is nil unless stored objects are encrypted.
	encryption *etcdconn.Encryption
	storage    *chain.Storage
	requests   *requests.Requests
	services   *services
	access     *auth.Access
	// etcdClients is nil unless etcd serves clients outside the process.
	etcdClients  *etcdconn.Clients
	allInformers *informers.Set
	informers    *informers.Factory
	chain        *chain.Chain
	plugins      *admission.Deferred
	charges      quota.Charges
	// fresh is true if the storage was empty, so that the first objects are as they have to be.
	fresh bool
	// ready is closed when /readyz has reported for the first time that the server is ready.
	ready chan struct{}
	// resetting is held by a reset.
	resetting sync.Mutex
}

// Start starts the control plane. It returns when the control plane is ready or, if that fails,
// after it has cleaned up. The context bounds the start only. A control plane starts once.
func (s *Server) Start(ctx context.Context) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	p, err := s.start(s.options.withLog(ctx))
	s.timeline.phase("")
	if err != nil {
		undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		return errors.Join(err, s.stopper.Stop(undoing))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plane = p
	return nil
}

// begin returns the context of the start, which Stop cancels too, and a function to call when the
// start ends.
func (s *Server) begin(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started != nil {
		return nil, nil, errStarted
	}
	ctx, s.interrupt = context.WithCancelCause(ctx)
	s.started = make(chan struct{})
	return ctx, func() {
		s.interrupt(nil)
		close(s.started)
	}, nil
}

// start creates the parts of the control plane in order. Each constructor returns a complete part,
// and pushes the steps that end it onto the stopper.
func (s *Server) start(ctx context.Context) (_ *plane, err error) {
	p := &plane{options: &s.options, stopper: s.stopper, ready: make(chan struct{})}
	directory := datadir.Config{Path: s.options.DataDir, Names: s.options.names()}
	// If another control plane runs here, the port is busy too, but the directory is the better
	// explanation.
	if err := datadir.CheckFree(directory); err != nil {
		return nil, err
	}
	s.timeline.phase("listen")
	if p.listener, err = requests.Listen(requests.ListenConfig{
		Listener: p.options.Listener, Host: p.options.BindAddress, Port: p.options.SecurePort,
		Names: p.options.names(),
	}, p.stopper); err != nil {
		return nil, err
	}
	s.timeline.phase("etcd")
	if p.dir, err = datadir.Open(directory, p.stopper); err != nil {
		return nil, err
	}
	var sharing sync.WaitGroup
	defer sharing.Wait()
	sharing.Go(p.shareObjects) // meanwhile
	if p.etcd, err = etcdconn.Open(ctx, p.options.etcd(p.dir), p.stopper); err != nil {
		return nil, err
	}
	// Write this file before keys are generated. A directory that is unsuitable for them has been
	// refused by now.
	if err := datadir.KeepOutOfGit(p.dir.Path); err != nil {
		return nil, s.options.wrong("DataDir", "data-dir", "%w", err)
	}
	if p.encryption, err = etcdconn.OpenEncryption(etcdconn.EncryptionConfig{
		File:   p.options.EncryptionProviderConfig,
		Reload: p.options.EncryptionProviderConfigAutomaticReload,
		Names:  p.options.names(),
	}, p.stopper); err != nil {
		return nil, err
	}
	p.storage = etcdconn.NewStorage(p.etcd, etcdconn.StorageConfig{
		Prefix: p.options.EtcdPrefix, ReadOnly: p.options.ReadOnly, Encryption: p.encryption,
	}, p.stopper)
	if p.requests, err = requests.Open(requests.Config{
		Listener:  p.listener,
		UserAgent: "kube-apiserver/" + KubernetesVersion + " (kinproc)",
		Log:       p.options.Log,
	}, p.stopper); err != nil {
		return nil, err
	}
	p.stopper.EndGoroutines("the API servers and control loops")
	p.allInformers = informers.New(p.requests.Client, p.storage, p.stopper)
	p.stopper.Push("watches", func() error { p.storage.Hold(); return nil })

	// Many of the following parts can end only after they have run, so an interrupted start
	// continues until it is ready.
	continuing, cancel := p.outlive(ctx, lateness)
	defer cancel()
	reading, cancelReading := etcdconn.UntilDamage(continuing, p.storage, p.stopper)
	defer cancelReading()
	if err := p.serve(continuing, reading, &s.timeline); err != nil {
		return nil, etcdconn.NameDamage(continuing, p.storage, cmp.Or(s.Err(), err))
	}
	return p, cmp.Or(s.Err(), context.Cause(ctx))
}

// serve creates the parts that read stored objects. The context reading ends with ctx, or when a
// stored object cannot be decoded.
func (p *plane) serve(ctx, reading context.Context, t *timeline) (err error) {
	t.phase("services")
	if p.services, err = newServices(reading, p); err != nil {
		return err
	}
	t.phase("access")
	credentials, err := p.authConfig()
	if err != nil {
		return err
	}
	if p.access, err = auth.Open(credentials, p.stopper); err != nil {
		return err
	}
	if p.etcdClients, err = p.etcd.Listen(etcdconn.ListenConfig{
		Address: p.options.ListenEtcd,
		Dir:     filepath.Join(p.dir.PKI(), "etcd"),
		Names:   p.options.names(),
	}, p.stopper); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.phase("chain")
	written := p.beginFirstObjects(ctx) // meanwhile
	late, err := p.newChain()
	if err != nil {
		_, _ = written() // the chain's error is the reason
		return err
	}
	p.plugins = late
	p.serveSnapshots()
	prepare := p.chain.Prepare() // meanwhile
	t.phase("first-objects")
	if p.fresh, err = p.finishFirstObjects(ctx, written); err == nil {
		t.phase("informers")
		generic := p.chain.Aggregator.GenericAPIServer
		generic.ShutdownTimeout = connections.ShutdownTimeout
		generic.Handler.FullHandlerChain = p.requests.Serve(generic.Handler.FullHandlerChain,
			p.isProxied, p.forgetHandlers)
		err = p.chain.StartInformers(reading, p.stopper.Context())
	}
	prepared, failed := prepare()
	if err := errors.Join(failed, err); err != nil {
		return err
	}
	if err := late.Start(); err != nil {
		return fmt.Errorf("admission: %w", err)
	}
	t.phase("hooks")
	p.stopper.Go(func() {
		if err := prepared.Run(p.stopper.Context()); err != nil {
			p.stopper.Fail(fmt.Errorf("run the chain: %w", err))
		}
	})
	if err := p.waitReady(ctx); err != nil {
		return err
	}
	close(p.ready)
	return p.startControllers()
}

// forgetHandlers lets go of the chain when no request is left. For 90 seconds, a timer of Go's
// HTTP/2 server refers to the server of a connection that was closed while it had streams.
func (p *plane) forgetHandlers() {
	p.chain.Stop()
	*p.chain.Aggregator.GenericAPIServer.Handler = genericapiserver.APIServerHandler{
		FullHandlerChain: http.NotFoundHandler(),
	}
}

// lateness is how long an interrupted start may continue. It is far more than a start takes.
const lateness = 10 * time.Second

// outlive returns a context that ends some time after its parent, or when the control plane fails.
func (p *plane) outlive(
	parent context.Context, by time.Duration,
) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		time.AfterFunc(by, func() { cancel(context.Cause(parent)) })
	})
	p.stopper.Go(func() {
		select {
		case <-p.stopper.Failed():
			cancel(p.stopper.Err())
		case <-ctx.Done():
		}
	})
	return ctx, func() { stop(); cancel(nil) }
}

// etcd returns the configuration of etcd with its data in dir.
func (o *Options) etcd(dir *datadir.Dir) etcdconn.Config {
	c := etcdconn.Config{
		Servers: o.EtcdServers, CAFile: o.EtcdCAFile, CertFile: o.EtcdCertFile, KeyFile: o.EtcdKeyFile,
		Dir: dir.Etcd(), Ephemeral: !dir.Kept, Log: o.Log, Names: o.names(),
	}
	if o.From != nil {
		c.From = o.From.data
	}
	return c
}

func (p *plane) authConfig() (auth.Config, error) {
	o := p.options
	host, _, err := net.SplitHostPort(p.listener.Addr().String())
	if err != nil {
		return auth.Config{}, err
	}
	ip := net.ParseIP(host)
	first := p.services.allocator.FirstIP().String()
	hosts, advertised := []string{host, first}, o.AdvertiseAddress
	if ip.IsUnspecified() {
		hosts = append(hosts, kubernetesservice.AdvertiseAddress(ip).String())
	}
	if advertised != "" {
		hosts = append(hosts, advertised)
	} else {
		advertised = kubernetesservice.AdvertiseAddress(ip).String()
	}
	return auth.Config{
		Directory: p.dir, PKIDir: o.PKIDir,
		Hosts: hosts, Listener: p.listener, AdvertiseAddress: advertised, ServiceIP: first,
		TLSCertFile: o.TLSCertFile, TLSPrivateKeyFile: o.TLSPrivateKeyFile, CertDir: o.CertDir,
		TLSMinVersion: o.TLSMinVersion, TLSCipherSuites: o.TLSCipherSuites,

		ClientCAFile: o.ClientCAFile, RequestHeader: auth.RequestHeader(o.RequestHeader),
		ProxyClientCertFile: o.ProxyClientCertFile, ProxyClientKeyFile: o.ProxyClientKeyFile,
		TokenAuthFile: o.TokenAuthFile, EnableBootstrapTokenAuth: o.EnableBootstrapTokenAuth,
		Anonymous: o.anonymous(), DisableAnonymous: o.DisableAnonymous,
		ServiceAccounts: auth.ServiceAccounts{
			Issuers: o.ServiceAccountIssuer, Audiences: o.APIAudiences,
			KeyFiles: o.ServiceAccountKeyFiles, SigningKeyFile: o.ServiceAccountSigningKeyFile,
			JWKSURI: o.ServiceAccountJWKSURI, MaxExpiration: o.ServiceAccountMaxTokenExpiration,
		},
		OIDC: auth.OIDC(o.OIDC), AuthenticationConfigFile: o.AuthenticationConfigFile,
		TokenWebhook: auth.TokenWebhook(o.TokenWebhook),

		AuthorizationModes:      o.AuthorizationModes,
		AuthorizationWebhook:    auth.AuthorizationWebhook(o.AuthorizationWebhook),
		AuthorizationConfigFile: o.AuthorizationConfigFile,
		ReadOnly:                o.ReadOnly,

		Client: p.requests.Client, Informers: p.allInformers, Names: o.names(),
	}, nil
}
