// Package connections closes the connections of a server that stops.
package connections

import (
	"net"
	"sync"
	"time"
)

// grace is how long requests may go on after a server has begun to shut down. Those that are not
// long-running have ended before.
const grace = 10 * time.Millisecond

// ShutdownTimeout is how long the Shutdown of a server may take. It is much longer than the grace,
// also on a busy machine, and shorter than the five seconds for which package net/http waits for a
// connection that has sent nothing.
const ShutdownTimeout = 4 * time.Second

// Listener tracks the connections that it accepts so that it can close them. Otherwise the Shutdown
// of an HTTP server would wait for long-running requests, and a second for HTTP/2.
type Listener struct {
	net.Listener
	accepted Set

	mu     sync.Mutex
	ending *time.Timer // nil before Close
}

// Track returns a listener that accepts the connections of l and tracks them.
func Track(l net.Listener) *Listener { return &Listener{Listener: l} }

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.accepted.Add(c)
}

// Close closes the port, and soon the connections. A server calls it first when it shuts down.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending == nil {
		l.ending = time.AfterFunc(grace, l.accepted.Close)
	}
	return l.Listener.Close()
}

// CloseAll closes the port and all connections at once. It may be called more than once.
func (l *Listener) CloseAll() error {
	l.Listener.Close()
	l.accepted.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending != nil {
		l.ending.Stop()
	}
	return nil
}

// Set has connections that are open. The zero value is empty.
type Set struct {
	mu     sync.Mutex
	open   map[*conn]struct{}
	closed bool
}

// Add returns the connection as one of the set, until it is closed. If the set has been closed, Add
// closes the connection and returns net.ErrClosed.
func (s *Set) Add(c net.Conn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return nil, net.ErrClosed
	}
	if s.open == nil {
		s.open = map[*conn]struct{}{}
	}
	tracked := &conn{c, s}
	s.open[tracked] = struct{}{}
	return tracked, nil
}

// Close closes all connections of the set, and those that are added later.
func (s *Set) Close() {
	s.mu.Lock()
	open := s.open
	s.open, s.closed = nil, true
	s.mu.Unlock()
	for c := range open {
		c.Conn.Close()
	}
}

// conn is a connection of a set.
type conn struct {
	net.Conn
	set *Set
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.set.mu.Lock()
	delete(c.set.open, c)
	c.set.mu.Unlock()
	return c.Conn.Close()
}
