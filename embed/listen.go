package embed

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const (
	socketName = "etcd.sock"
	// maxSocketPath is the smallest limit of all platforms for the path of a Unix socket (macOS:
	// 104 including the terminating zero).
	maxSocketPath = 103
	// minPing is the minimum interval between the pings of a client. Clients that ping more often
	// are disconnected. The value is etcd's default; Kubernetes pings every 30 s.
	minPing = 5 * time.Second
)

type listener struct {
	path string
	// not nil if the socket is in a temporary directory because dir's path is too long
	removeTemp func() error
	server     *grpc.Server
	done       chan error
}

func listen(dir string, server *etcdserver.EtcdServer) (*listener, error) {
	l := &listener{path: filepath.Join(dir, socketName), done: make(chan error, 1)}
	if len(l.path) > maxSocketPath {
		temp, remove, err := TempDir("")
		if err != nil {
			return nil, err
		}
		l.path, l.removeTemp = filepath.Join(temp, socketName), remove
	}
	// Remove a socket that a killed process left behind. Since the directory is locked, no process
	// listens on it.
	if err := os.Remove(l.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Join(err, l.cleanup())
	}
	socket, err := net.Listen("unix", l.path)
	if err != nil {
		return nil, errors.Join(err, l.cleanup())
	}
	if err := os.Chmod(l.path, 0o600); err != nil {
		return nil, errors.Join(err, socket.Close(), l.cleanup())
	}
	l.server = newGRPC(server, nil)
	go func() { l.done <- l.server.Serve(socket) }()
	return l, nil
}

func newGRPC(server *etcdserver.EtcdServer, config *tls.Config) *grpc.Server {
	return v3rpc.Server(server, config, nil, grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             minPing,
			PermitWithoutStream: true,
		}))
}

// Serve serves clients outside the process that connect to l, with TLS if config is not nil, until
// stop is called, which must happen before Stop. It takes over l. They may do everything that
// [Etcd.Client] may, so config should require a client certificate.
func (e *Etcd) Serve(l net.Listener, config *tls.Config) (stop func() error) {
	server, done := newGRPC(e.server, config), make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	return func() error {
		server.Stop()
		return <-done
	}
}

func (l *listener) endpoint() string { return "unix://" + filepath.ToSlash(l.path) }

func (l *listener) close() error {
	l.server.Stop()
	return errors.Join(<-l.done, l.cleanup())
}

func (l *listener) cleanup() error {
	if l.removeTemp == nil {
		return nil
	}
	return l.removeTemp()
}
