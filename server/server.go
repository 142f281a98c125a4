package server

import (
	"context"
	"errors"
	"net"
	"sync"
)

// Server is a control plane. Unless it says otherwise, a method that returns something of a running
// control plane panics if Start has not succeeded. It still answers after Stop.
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

// New returns a control plane that [Server.Start] starts. Its error lists everything that is wrong with
// the options.
func New(options Options) (*Server, error) {
	options.complete()
	if err := errors.Join(options.validate()...); err != nil {
		return nil, err
	}
	if err := setFeatureGates(options.FeatureGates); err != nil {
		return nil, options.wrong("FeatureGates", "feature-gates", "%w", err)
	}
	return &Server{options: options, failure: newFailure(), stopping: stopping{ended: make(chan struct{})}}, nil
}

// up returns what Start has made. Before Start has succeeded, it panics on behalf of the method that
// asks for it.
func (s *Server) up(method string) *plane {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plane == nil {
		panic("server: " + method + " called before Start succeeded")
	}
	return s.plane
}

// Failed returns a channel that is closed when the control plane fails while it runs; [Server.Err] then
// says why. Failed may be called before Start.
func (s *Server) Failed() <-chan struct{} { return s.failure.happened }

// Err returns why the control plane failed, or nil if it has not. It may be called before Start.
func (s *Server) Err() error { return s.failure.get() }

// Dir returns the directory of data, keys and certificates: Options.DataDir, or the temporary
// directory in its place.
func (s *Server) Dir() string { return s.up("Dir").dir }

// Kinds returns the number of built-in kinds that the control plane serves.
func (s *Server) Kinds() int { return s.up("Kinds").chain.Core.Kinds }

// URL returns the address of the API for a client on this machine.
func (s *Server) URL() string { return s.up("URL").url() }

// url returns an address at which a client on this machine reaches the listener.
func (p *plane) url() string {
	address := p.listener.Addr().String()
	if host, port, err := net.SplitHostPort(address); err == nil && net.ParseIP(host).IsUnspecified() {
		address = net.JoinHostPort(defaultBindAddress, port)
	}
	return "https://" + address
}
