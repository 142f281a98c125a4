package etcdconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/kinproc/kinproc/server/internal/auth/pki"
	"github.com/kinproc/kinproc/server/internal/option"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// Clients is how clients outside the process reach the embedded etcd.
type Clients struct{ Endpoint, CAFile, CertFile, KeyFile string }

// ListenConfig says where the embedded etcd serves other clients.
type ListenConfig struct {
	Address string
	// Dir is the directory of the certificates.
	Dir   string
	Names option.Names
}

// Listen lets the embedded etcd serve clients outside the process. Its certificates have an
// authority of their own: whoever has one may read all secrets, so the certificates of users and
// nodes must not do. Without an address, Listen returns nil.
func (c *Conn) Listen(to ListenConfig, s *stopper.Stopper) (*Clients, error) {
	if to.Address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", to.Address)
	if err != nil {
		if op := new(net.OpError); errors.As(err, &op) {
			err = op.Err
		}
		return nil, to.Names.Wrong("ListenEtcd",
			"listen on %s: %w; name another port, or 0 for any free one", to.Address, err)
	}
	host, _, err := net.SplitHostPort(to.Address)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	keys, err := pki.EnsureEtcd(to.Dir, pki.Options{Names: []string{host}})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("certificates of etcd: %w", err), l.Close())
	}
	serving, err := keys.Serving.TLS()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(keys.CA.Cert)
	stop := c.Embedded.Serve(l, &tls.Config{
		Certificates: []tls.Certificate{serving},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    clients,
		MinVersion:   tls.VersionTLS12,
	})
	s.Push("clients of etcd", stop)
	return &Clients{
		Endpoint: "https://" + l.Addr().String(),
		CAFile:   filepath.Join(to.Dir, "ca.crt"),
		CertFile: filepath.Join(to.Dir, "client.crt"),
		KeyFile:  filepath.Join(to.Dir, "client.key"),
	}, nil
}
