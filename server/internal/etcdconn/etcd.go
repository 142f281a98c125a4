// Package etcdconn connects a control plane to its etcd, embedded or external, and finds damaged
// objects there.
package etcdconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/option"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// Config says which etcd to use.
type Config struct {
	// Servers are the URLs of an external etcd. Without them, etcd is embedded.
	Servers []string
	// CAFile, CertFile and KeyFile configure TLS with Servers.
	CAFile, CertFile, KeyFile string
	// Dir is the directory of the embedded etcd.
	Dir string
	// Ephemeral is true if the embedded etcd does not wait for the disk.
	Ephemeral bool
	// QuotaBytes is what the database of the embedded etcd should have at most.
	QuotaBytes int64
	ReadOnly   bool
	// From is what the embedded etcd begins with, or nil.
	From *embed.Snapshot

	Log   logr.Logger
	Names option.Names
}

// Conn is a client of the embedded or an external etcd.
type Conn struct {
	Client *clientv3.Client
	// Embedded is nil with an external etcd.
	Embedded *embed.Etcd
	// Alive ends when the embedded etcd fails, with the reason as its cause.
	Alive context.Context
}

// externalTimeout is how long the start waits for an external etcd to answer.
const externalTimeout = 3 * time.Second

// A member of etcd that is cut off answers nothing, and TCP alone would wait for it for a quarter
// of an hour. A connection is given up when the member's system does not confirm for silenceLimit
// what was sent, or, if nothing was sent, after idleCheck more. The time must be shorter than a
// control plane keeps the lease of the control loops without renewing it. The system of a member
// that is merely busy confirms at once.
const (
	silenceLimit = 2 * time.Second
	idleCheck    = 10 * time.Second // the shortest that gRPC allows
)

// diagnosisTimeout bounds the search for the reason why etcd does not answer.
const diagnosisTimeout = 500 * time.Millisecond

// Open starts the embedded etcd, or connects to the external one. The control plane fails if the
// embedded etcd fails while it runs.
func Open(ctx context.Context, c Config, s *stopper.Stopper) (*Conn, error) {
	if len(c.Servers) > 0 {
		return dial(ctx, c, s)
	}
	alive, end := context.WithCancelCause(context.Background())
	e, err := embed.Start(ctx, embed.Options{
		Dir:        c.Dir,
		Ephemeral:  c.Ephemeral,
		From:       c.From,
		QuotaBytes: c.QuotaBytes,
		Logger:     newLogger(c.Log),
		OnFailure:  func(err error) { end(err); s.Fail(err) },
	})
	if errors.Is(err, embed.ErrHasData) {
		return nil, c.Names.Wrong("From", "%w", err)
	}
	if err != nil {
		return nil, err
	}
	s.Push("etcd", func() error { return e.Stop(context.Background()) })
	if e.Room().Full() && !c.ReadOnly {
		// A database that an earlier process left full must not refuse the first writes of this
		// one.
		if _, err := e.MakeRoom(ctx); err != nil {
			return nil, fmt.Errorf("make room in the database, which is full: %w", err)
		}
	}
	return &Conn{e.Client(), e, alive}, nil
}

// database is the database of the embedded etcd.
type database struct{ *embed.Etcd }

// Room implements chain.Database.
func (d database) Room() chain.Room { return chain.Room(d.Etcd.Room()) }

func dial(ctx context.Context, c Config, s *stopper.Stopper) (*Conn, error) {
	watch := &leaderWatch{}
	config := clientv3.Config{
		Endpoints:   c.Servers,
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(watch.intercept)},
		DialTimeout: externalTimeout,

		DialKeepAliveTime:    idleCheck,
		DialKeepAliveTimeout: silenceLimit,
		Logger:               newLogger(c.Log),
	}
	if c.CAFile != "" || c.CertFile != "" {
		tlsConfig, err := transport.TLSInfo{
			TrustedCAFile: c.CAFile,
			CertFile:      c.CertFile,
			KeyFile:       c.KeyFile,
		}.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("read the TLS files of etcd: %w", err)
		}
		config.TLS = tlsConfig
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(c.Servers, ", "), err)
	}
	watch.client = client
	if err := probe(ctx, client, config.TLS); ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), client.Close())
	} else if err != nil {
		err = c.Names.Wrong("EtcdServers",
			"etcd at %s does not answer: %w; check that it is running and that the certificates for it "+
				"are right", strings.Join(c.Servers, ", "), err)
		return nil, errors.Join(err, client.Close())
	}
	s.Push("the client of etcd", client.Close)
	return &Conn{Client: client, Alive: context.Background()}, nil
}

// probe waits until etcd answers. If etcd does not, the client reports only a timeout, so
// probe looks for the cause.
func probe(ctx context.Context, client *clientv3.Client, config *tls.Config) error {
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

// Check implements the health check "etcd" of /livez and /readyz.
func (c *Conn) Check(r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	if _, err := c.Client.Get(ctx, "health"); err != nil {
		return fmt.Errorf("read from etcd: %w", err)
	}
	return nil
}

// StorageConfig says how objects are stored.
type StorageConfig struct {
	// Prefix is that of all keys.
	Prefix   string
	ReadOnly bool
	// HistoryKept is how long old revisions are kept.
	HistoryKept time.Duration
	// Encryption is nil if objects are stored in plain text.
	Encryption *Encryption
	// Writers is the directory that keeps who wrote what, or empty if that ends with the process.
	Writers string
}

// NewStorage returns the storage of all objects.
func NewStorage(
	ctx context.Context, etcd *Conn, c StorageConfig, s *stopper.Stopper,
) (*chain.Storage, error) {
	config := chain.StorageConfig{Client: etcd.Client, Prefix: c.Prefix, HistoryKept: c.HistoryKept}
	if etcd.Embedded != nil {
		config.Database = database{etcd.Embedded}
	}
	storage := chain.NewStorage(config)
	if c.Encryption != nil {
		storage.Encrypt(c.Encryption)
	}
	if c.ReadOnly {
		storage.RefuseWrites()
	}
	s.Push("watch caches", func() error { storage.Stop(); return nil })
	if c.Writers != "" {
		if err := storage.KeepWriters(ctx, c.Writers); err != nil {
			return nil, err
		}
	}
	return storage, nil
}
