package server

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/kinproc/kinproc/server/internal/stopper"
)

// Server is a control plane. Methods that return details of the running control plane panic if
// Start has not succeeded, unless their documentation says otherwise. They still work after Stop.
type Server struct {
	options  Options
	timeline timeline
	stopper  *stopper.Stopper

	mu sync.Mutex
	// closed when the start has ended, successfully or not; nil before it begins
	started   chan struct{}
	interrupt context.CancelCauseFunc // cancels the start
	// running is a *running, and nil until the start has succeeded. The type is not named for the
	// reason of [configs].
	running any
}

// localhost is where a control plane listens by default.
const localhost = "127.0.0.1"

// New returns a control plane that is not started yet; see [Server.Start]. The error lists
// everything that is wrong with the options.
func New(options Options) (*Server, error) {
	options.complete()
	if err := errors.Join(options.validate()...); err != nil {
		return nil, err
	}
	if err := setFeatureGates(options.FeatureGates, options.version()); err != nil {
		return nil, options.wrong(&options.EmulatedVersion, "%w", err)
	}
	return &Server{
		options: options,
		stopper: stopper.New(options.withLog(context.Background())),
	}, nil
}

// up returns what Start returned. It panics, naming the calling method, if Start has not
// succeeded.
func up(s *Server, method string) *running {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.running.(*running)
	if !ok {
		panic("server: " + method + " called before Start succeeded")
	}
	return r
}

// Failed returns a channel that is closed if the control plane fails while it runs; [Server.Err]
// then returns the reason. Failed may be called before Start.
func (s *Server) Failed() <-chan struct{} { return s.stopper.Failed() }

// Err returns why the control plane failed, or nil if it has not. It may be called before Start.
func (s *Server) Err() error { return s.stopper.Err() }

// Dir returns the directory with data, keys and certificates: Options.DataDir, or the temporary
// directory that is used without it.
func (s *Server) Dir() string { return up(s, "Dir").directory.Path }

// Kinds returns the number of built-in kinds that the control plane serves.
func (s *Server) Kinds() int { return up(s, "Kinds").apis.Chain.Core.Kinds }

// Emulates returns the minor version of Kubernetes that the control plane behaves as, such as
// "1.35". It may be called before Start.
func (s *Server) Emulates() string { return s.options.EmulatedVersion }

// URL returns the address of the API for a client on this machine.
func (s *Server) URL() string { return up(s, "URL").url() }

// Network returns Options.Network. It may be called before Start.
func (s *Server) Network() *Network { return s.options.Network }

// url returns an address at which a client on this machine reaches the listener.
func (r *running) url() string {
	address := r.listener.Addr().String()
	if host, port, err := net.SplitHostPort(address); err == nil && net.ParseIP(host).IsUnspecified() {
		address = net.JoinHostPort(localhost, port)
	}
	return "https://" + address
}
