package servertest

import (
	"crypto/tls"
	"net"
	"os"
	"strconv"

	"github.com/kinproc/kinproc/server/internal/install"
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

	network install.Network // nil if the endpoint is a socket
}

// Addr returns Host and Port for [net.Listen].
func (e *Endpoint) Addr() string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }

// Listen listens at the endpoint with its certificate.
func (e *Endpoint) Listen() (net.Listener, error) {
	l, err := e.installed().Network.Listen("tcp", e.Addr())
	if err != nil {
		return nil, err
	}
	return tls.NewListener(l, e.TLS), nil
}

// installed returns the endpoint as the control plane is to know it.
func (e *Endpoint) installed() *install.Endpoint {
	of := &install.Endpoint{Host: e.Host, Port: e.Port, CABundle: e.CABundle, Network: e.network}
	if of.Network == nil {
		of.Network = &install.Sockets{}
	}
	return of
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
	if err := e.installed().Await(ctx); err != nil {
		t.Fatalf("servertest: server at %s: %v", e.Addr(), err)
	}
}

func newEndpoint(t TB, network install.Network) (*Endpoint, error) {
	dir, err := tempDir(t)
	if err != nil {
		return nil, err
	}
	of, err := install.NewEndpoint(network, dir)
	if err != nil {
		return nil, err
	}
	return &Endpoint{
		Host: of.Host, Port: of.Port, CertDir: dir, TLS: of.TLS, CABundle: of.CABundle,
		network: network,
	}, nil
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
