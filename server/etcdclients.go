package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

// etcdClients is how clients outside the process reach the embedded etcd.
type etcdClients struct{ endpoint, caFile, certFile, keyFile string }

// validateListenEtcd validates Options.ListenEtcd, which is set.
func (o *Options) validateListenEtcd() error {
	wrong := func(format string, args ...any) error {
		return o.wrong("ListenEtcd", "listen-etcd", format, args...)
	}
	switch host, port, err := net.SplitHostPort(o.ListenEtcd); {
	case err != nil:
		return wrong("%q is not an address with a port, such as 127.0.0.1:2379", o.ListenEtcd)
	case !net.ParseIP(host).IsLoopback():
		return wrong("%q is not a loopback address, such as 127.0.0.1 or ::1; who reaches etcd may "+
			"change everything", host)
	case !isPort(port):
		return wrong("%q is not a port", port)
	case len(o.EtcdServers) > 0:
		return wrong("%s is set; only the embedded etcd can listen",
			o.name("EtcdServers", "etcd-servers"))
	case o.ReadOnly:
		return wrong("%s is set, but clients of etcd could write", o.name("ReadOnly", "read-only"))
	}
	return nil
}

func isPort(port string) bool {
	n, err := strconv.Atoi(port)
	return err == nil && n >= 0 && n <= 65535
}

// listenEtcd lets the embedded etcd serve clients outside the process. Its certificates have an
// authority of their own: whoever has one may read all secrets, so the certificates of users and
// nodes must not do.
func (p *plane) listenEtcd() (*etcdClients, error) {
	address := p.options.ListenEtcd
	l, err := net.Listen("tcp", address)
	if err != nil {
		if op := new(net.OpError); errors.As(err, &op) {
			err = op.Err
		}
		return nil, p.options.wrong("ListenEtcd", "listen-etcd",
			"listen on %s: %w; name another port, or 0 for any free one", address, err)
	}
	dir := filepath.Join(p.dir, pkiDir, "etcd")
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	keys, err := pki.EnsureEtcd(dir, pki.Options{Names: []string{host}})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("certificates of etcd: %w", err), l.Close())
	}
	serving, err := keys.Serving.TLS()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(keys.CA.Cert)
	stop := p.etcd.embedded.Serve(l, &tls.Config{
		Certificates: []tls.Certificate{serving},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    clients,
		MinVersion:   tls.VersionTLS12,
	})
	p.stopper.Push("clients of etcd", stop)
	return &etcdClients{
		endpoint: "https://" + l.Addr().String(),
		caFile:   filepath.Join(dir, "ca.crt"),
		certFile: filepath.Join(dir, "client.crt"),
		keyFile:  filepath.Join(dir, "client.key"),
	}, nil
}

// EtcdEndpoints returns the URL at which the embedded etcd serves clients outside the process, or
// nil without [Options].ListenEtcd. Clients need the files of [Server.EtcdClientFiles].
//
// Keep out of the keys below Options.EtcdPrefix: the control plane does not expect that somebody
// else writes them. A reset covers all keys.
func (s *Server) EtcdEndpoints() []string {
	if clients := s.up("EtcdEndpoints").etcdClients; clients != nil {
		return []string{clients.endpoint}
	}
	return nil
}

// EtcdClientFiles returns the files with which a client of [Server.EtcdEndpoints] trusts etcd and
// identifies itself, such as for the flags --etcd-cafile, --etcd-certfile and --etcd-keyfile of an
// extension API server. They are empty without [Options].ListenEtcd.
func (s *Server) EtcdClientFiles() (ca, cert, key string) {
	if clients := s.up("EtcdClientFiles").etcdClients; clients != nil {
		return clients.caFile, clients.certFile, clients.keyFile
	}
	return "", "", ""
}
