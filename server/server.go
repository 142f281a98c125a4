package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// Server is a control plane.
type Server struct {
	options  Options
	timeline timeline
	undo     undo
	failure  *failure
	stopping stopping

	mu        sync.Mutex
	started   chan struct{}           // closed when the start has ended, in whatever way; nil before it begins
	interrupt context.CancelCauseFunc // ends the start
	plane     *plane                  // nil until the start has succeeded
}

// New makes a control plane, which [Server.Start] starts.
func New(options Options) (*Server, error) {
	options.complete()
	if err := errors.Join(options.Validate()...); err != nil {
		return nil, fmt.Errorf("invalid options: %w", err)
	}
	setLogging(options.Verbosity)
	if err := setFeatureGates(options.FeatureGates); err != nil {
		return nil, err
	}
	return &Server{options: options, failure: newFailure(), stopping: stopping{ended: make(chan struct{})}}, nil
}

// up is what Start has made. Method is the method that needs it: before Start has returned without an
// error, the method panics.
func (s *Server) up(method string) *plane {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plane == nil {
		panic("server: " + method + " needs a control plane that has been started")
	}
	return s.plane
}

// Failed is closed when the control plane cannot go on by itself; [Server.Err] says why.
func (s *Server) Failed() <-chan struct{} { return s.failure.happened }

// Err is why the control plane failed, or nil.
func (s *Server) Err() error { return s.failure.get() }

// Dir is where data, keys and certificates are: Options.DataDir, or the temporary directory in its place.
func (s *Server) Dir() string { return s.up("Dir").dir }

// Kinds is the number of built-in kinds that are served.
func (s *Server) Kinds() int { return s.up("Kinds").chain.Core.Kinds }

// URL is where the API is served, for a client on this machine.
func (s *Server) URL() string { return s.up("URL").url() }

// url leads to an address at which a client on this machine reaches the listener.
func (p *plane) url() string {
	address := p.listener.Addr().String()
	if host, port, err := net.SplitHostPort(address); err == nil && net.ParseIP(host).IsUnspecified() {
		address = net.JoinHostPort(DefaultBindAddress, port)
	}
	return "https://" + address
}
