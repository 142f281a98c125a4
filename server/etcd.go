package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// etcd is a client of the embedded or an external etcd.
type etcd struct {
	client   *clientv3.Client
	embedded *embed.Etcd // nil with an external etcd
	// alive ends when the embedded etcd fails, with the reason as its cause.
	alive context.Context
}

// externalTimeout is how long the start waits for an external etcd to answer.
const externalTimeout = 3 * time.Second

// diagnosisTimeout bounds the search for the reason why etcd does not answer.
const diagnosisTimeout = 500 * time.Millisecond

// startEtcd starts the embedded etcd in dir, or connects to the external one. It calls fail if the
// embedded etcd fails while it runs.
func startEtcd(
	ctx context.Context, options *Options, dir string, fail func(error), s *stopper.Stopper,
) (*etcd, error) {
	if len(options.EtcdServers) > 0 {
		return dialEtcd(ctx, options, s)
	}
	alive, end := context.WithCancelCause(context.Background())
	o := embed.Options{
		Dir:       filepath.Join(dir, etcdDir),
		Ephemeral: options.DataDir == "",
		Logger:    etcdLogger(options.Log),
		OnFailure: func(err error) { end(err); fail(err) },
	}
	if o.Ephemeral {
		o.Dir = dir
	}
	if options.From != nil {
		o.From = options.From.data
	}
	e, err := embed.Start(ctx, o)
	if errors.Is(err, embed.ErrHasData) {
		return nil, options.wrong("From", "from", "%w", err)
	}
	if err != nil {
		return nil, err
	}
	s.Push("etcd", func() error { return e.Stop(context.Background()) })
	return &etcd{e.Client(), e, alive}, nil
}

func dialEtcd(ctx context.Context, o *Options, s *stopper.Stopper) (*etcd, error) {
	watch := &leaderWatch{}
	config := clientv3.Config{
		Endpoints:   o.EtcdServers,
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(watch.intercept)},
		DialTimeout: externalTimeout,
		Logger:      etcdLogger(o.Log),
	}
	if o.EtcdCAFile != "" || o.EtcdCertFile != "" {
		tlsConfig, err := transport.TLSInfo{
			TrustedCAFile: o.EtcdCAFile,
			CertFile:      o.EtcdCertFile,
			KeyFile:       o.EtcdKeyFile,
		}.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("read the TLS files of etcd: %w", err)
		}
		config.TLS = tlsConfig
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(o.EtcdServers, ", "), err)
	}
	watch.client = client
	if err := probeEtcd(ctx, client, config.TLS); ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), client.Close())
	} else if err != nil {
		err = o.wrong("EtcdServers", "etcd-servers",
			"etcd at %s does not answer: %w; check that it is running and that the certificates for it "+
				"are right", strings.Join(o.EtcdServers, ", "), err)
		return nil, errors.Join(err, client.Close())
	}
	s.Push("the client of etcd", client.Close)
	return &etcd{client: client, alive: context.Background()}, nil
}

// probeEtcd waits until etcd answers. If etcd does not, the client reports only a timeout, so
// probeEtcd looks for the cause.
func probeEtcd(ctx context.Context, client *clientv3.Client, config *tls.Config) error {
	reading, cancel := context.WithTimeout(ctx, externalTimeout)
	defer cancel()
	_, err := client.Get(reading, "health")
	if err == nil {
		return nil
	}
	ctx, cancel = context.WithTimeout(ctx, diagnosisTimeout)
	defer cancel()
	for _, endpoint := range client.Endpoints() {
		if cause := greet(ctx, endpoint, config); cause != nil {
			return cause
		}
	}
	return err
}

// greet connects and reads one byte: the first one that an HTTP/2 server sends, or a TLS alert from
// a server that requires another certificate.
func greet(ctx context.Context, endpoint string, config *tls.Config) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	dialer := &net.Dialer{}
	dial := dialer.DialContext
	if u.Scheme == "https" {
		dial = (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext
	}
	network, address := "tcp", u.Host
	if strings.HasPrefix(u.Scheme, "unix") {
		network, address = "unix", u.Host+u.Path
	}
	conn, err := dial(ctx, network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// healthTimeout is kube-apiserver's --etcd-healthcheck-timeout.
const healthTimeout = 2 * time.Second

// check implements the health check "etcd" of /livez and /readyz.
func (e *etcd) check(r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	if _, err := e.client.Get(ctx, "health"); err != nil {
		return fmt.Errorf("read from etcd: %w", err)
	}
	return nil
}

// newStorage returns the storage of all objects.
func newStorage(e *etcd, o *Options, by *encryption, s *stopper.Stopper) *chain.Storage {
	storage := chain.NewStorage(e.client, o.EtcdPrefix)
	if by != nil {
		storage.Encrypt(by)
	}
	if o.ReadOnly {
		storage.RefuseWrites()
	}
	s.Push("watch caches", func() error { storage.Stop(); return nil })
	return storage
}
