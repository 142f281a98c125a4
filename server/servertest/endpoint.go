package servertest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

// Endpoint is where a server of the test process is to listen, and the certificate with which it is
// to serve. See [NewEndpoint].
type Endpoint struct {
	// Host is a loopback address, and Port a free port of it.
	Host string
	Port int
	// CertDir holds the certificate and its key in the files tls.crt and tls.key. It is removed
	// when the test ends.
	CertDir string
	// TLS has the same certificate and key.
	TLS *tls.Config
	// CABundle is the authority that signed the certificate, in PEM.
	CABundle []byte

	network *server.Network // nil if the endpoint is a socket
}

// Addr returns Host and Port for [net.Listen].
func (e *Endpoint) Addr() string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }

// Listen listens at the endpoint with its certificate.
func (e *Endpoint) Listen() (net.Listener, error) {
	l, err := e.listen("tcp", e.Addr())
	if err != nil {
		return nil, err
	}
	return tls.NewListener(l, e.TLS), nil
}

func (e *Endpoint) listen(network, address string) (net.Listener, error) {
	if e.network != nil {
		return e.network.Listen(network, address)
	}
	return net.Listen(network, address)
}

// NewEndpoint returns an address and a certificate for a server that the test is going to start.
// [Webhooks] does so for webhooks, so this is for extension API servers; see [APIService].
//
//	e := servertest.NewEndpoint(t)
//	l, err := e.Listen()
//
// Nobody listens at the address yet. Where the system allows it, Host is a random one of the
// loopback addresses 127.0.0.0/8, so that no other process takes the port in the meantime. The
// certificate is valid for Host, localhost, and the services of the namespace "default".
//
// In a bubble of [testing/synctest], name the control plane that is to reach the endpoint. Only
// [Endpoint.Listen] listens there; see [InBubble].
func NewEndpoint(t TB, c ...API) *Endpoint {
	t.Helper()
	e, err := newEndpoint(t, networkOf(c))
	if err != nil {
		t.Fatalf("servertest: address and certificate for a server: %v", err)
	}
	return e
}

// Await waits until a server serves at the endpoint with the endpoint's certificate.
func (e *Endpoint) Await(t TB) {
	t.Helper()
	ctx, cancel := helperContext(t)
	defer cancel()
	if err := until(ctx, e.handshake); err != nil {
		t.Fatalf("servertest: server at %s: %v", e.Addr(), err)
	}
}

// handshake connects to the endpoint.
func (e *Endpoint) handshake(ctx context.Context) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.CABundle)
	dial := new(net.Dialer).DialContext
	if e.network != nil {
		dial = e.network.DialContext
	}
	raw, err := dial(ctx, "tcp", e.Addr())
	if err != nil {
		return err
	}
	defer raw.Close()
	conn := tls.Client(raw, &tls.Config{
		RootCAs: roots, ServerName: e.Host, MinVersion: tls.VersionTLS12,
	})
	err = conn.HandshakeContext(ctx)
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return fatal{fmt.Errorf("not the certificate of the endpoint: %w", err)}
	}
	if err != nil {
		return err
	}
	return conn.Close()
}

func newEndpoint(t TB, network *server.Network) (*Endpoint, error) {
	e := &Endpoint{network: network}
	if err := e.findAddress(); err != nil {
		return nil, err
	}
	authority, err := pki.New(pki.Options{Names: []string{e.Host, "*.default.svc"}})
	if err != nil {
		return nil, err
	}
	pair, err := authority.Serving.TLS()
	if err != nil {
		return nil, err
	}
	e.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	e.CABundle = authority.CA.Cert
	if e.CertDir, err = tempDir(t); err != nil {
		return nil, err
	}
	cert := filepath.Join(e.CertDir, "tls.crt")
	if err := os.WriteFile(cert, authority.Serving.Cert, 0o600); err != nil {
		return nil, err
	}
	return e, os.WriteFile(filepath.Join(e.CertDir, "tls.key"), authority.Serving.Key, 0o600)
}

// findAddress sets Host and Port.
func (e *Endpoint) findAddress() error {
	// 127.0.x.x is left to servers with well-known addresses, such as resolvers.
	e.Host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	l, err := e.listen("tcp", net.JoinHostPort(e.Host, "0"))
	if err != nil { // a system with only one loopback address
		e.Host = "127.0.0.1"
		l, err = e.listen("tcp", net.JoinHostPort(e.Host, "0"))
	}
	if err != nil {
		return err
	}
	e.Port = l.Addr().(*net.TCPAddr).Port
	return l.Close()
}

// tempDir returns a new directory, which is removed when the test ends.
func tempDir(t TB) (string, error) {
	dir, err := os.MkdirTemp("", "servertest-")
	if err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("servertest: %v", err)
		}
	})
	return dir, nil
}
