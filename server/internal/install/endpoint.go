package install

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
	"strings"

	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

// Endpoint is where a server listens, and the certificate with which it serves.
type Endpoint struct {
	Host     string
	Port     int
	TLS      *tls.Config
	CABundle []byte // of the authority that signed the certificate, in PEM
	Network  Network
}

// Network is where an endpoint is.
type Network interface {
	Listen(network, address string) (net.Listener, error)
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Sockets is the network of the machine.
type Sockets struct{ net.Dialer }

// Listen implements Network.
func (*Sockets) Listen(network, address string) (net.Listener, error) {
	return net.Listen(network, address)
}

// NewEndpoint returns a free loopback address, and a certificate that is valid for it, localhost
// and the services of the namespace default. It writes the certificate and its key to the files
// tls.crt and tls.key of a directory.
func NewEndpoint(network Network, dir string) (*Endpoint, error) {
	e := &Endpoint{Network: network}
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
	cert := filepath.Join(dir, "tls.crt")
	if err := os.WriteFile(cert, authority.Serving.Cert, 0o600); err != nil {
		return nil, err
	}
	return e, os.WriteFile(filepath.Join(dir, "tls.key"), authority.Serving.Key, 0o600)
}

// findAddress sets Host and Port.
func (e *Endpoint) findAddress() error {
	// 127.0.x.x is left to servers with well-known addresses, such as resolvers. Nobody else takes
	// a port of a random address in the meantime.
	e.Host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	l, err := e.Network.Listen("tcp", net.JoinHostPort(e.Host, "0"))
	if err != nil { // a system with only one loopback address
		e.Host = "127.0.0.1"
		l, err = e.Network.Listen("tcp", net.JoinHostPort(e.Host, "0"))
	}
	if err != nil {
		return err
	}
	e.Port = l.Addr().(*net.TCPAddr).Port
	return l.Close()
}

// Addr returns Host and Port.
func (e *Endpoint) Addr() string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }

func (e *Endpoint) url(path string) string {
	return "https://" + e.Addr() + "/" + strings.TrimPrefix(path, "/")
}

// Await waits until a server serves at the endpoint with the endpoint's certificate.
func (e *Endpoint) Await(ctx context.Context) error { return Until(ctx, e.handshake) }

// handshake connects to the endpoint.
func (e *Endpoint) handshake(ctx context.Context) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.CABundle)
	raw, err := e.Network.DialContext(ctx, "tcp", e.Addr())
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
