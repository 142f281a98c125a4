// Package connections closes the connections of a server that stops.
package connections

import (
	"net"
	"sync"
)

// Listener tracks the connections that it accepts so that it can close them. After Shutdown, an
// HTTP/2 server would keep idle connections open for another second.
type Listener struct {
	net.Listener
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
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

// CloseAll closes the port and all connections. It may be called more than once.
func (l *Listener) CloseAll() error {
	l.Listener.Close()
	l.mu.Lock()
	l.closed = true
	open := l.open
	l.open = nil
	l.mu.Unlock()
	for c := range open {
		c.(*conn).Conn.Close()
	}
	return nil
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
