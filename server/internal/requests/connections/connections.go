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

// ShutdownTimeout is how long the Shutdown of a server may take. It is much longer than the grace.
const ShutdownTimeout = time.Second

// Listener tracks the connections that it accepts so that it can close them. Otherwise the Shutdown
// of an HTTP server would wait for long-running requests, and a second for HTTP/2.
type Listener struct {
	net.Listener

	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
	ending *time.Timer // nil before Close
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &conn{Conn: c, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Close()
		return nil, net.ErrClosed
	}
	l.open[tracked] = struct{}{}
	return tracked, nil
}

// Close closes the port, and soon the connections. A server calls it first when it shuts down.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending == nil {
		l.ending = time.AfterFunc(grace, l.closeConnections)
	}
	return l.Listener.Close()
}

// CloseAll closes the port and all connections at once. It may be called more than once.
func (l *Listener) CloseAll() error {
	l.Listener.Close()
	l.closeConnections()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending != nil {
		l.ending.Stop()
	}
	return nil
}

func (l *Listener) closeConnections() {
	l.mu.Lock()
	l.closed = true
	open := l.open
	l.open = nil
	l.mu.Unlock()
	for c := range open {
		c.(*conn).Conn.Close()
	}
}

// Track returns a listener that accepts the connections of l and tracks them.
func Track(l net.Listener) *Listener {
	return &Listener{Listener: l, open: map[net.Conn]struct{}{}}
}

// conn is a tracked connection.
type conn struct {
	net.Conn
	listener *Listener
}

func (c *conn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
