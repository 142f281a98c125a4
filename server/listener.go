package server

import (
	"errors"
	"fmt"
	"net"
	"sync"
)

// listen opens the port, or uses the listener from the options.
func listen(o *Options, u *undo) (*listener, error) {
	address := net.JoinHostPort(o.BindAddress, fmt.Sprint(o.SecurePort))
	l := o.Listener
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", address); err != nil {
			if op := new(net.OpError); errors.As(err, &op) {
				err = op.Err // without the address, which the message has already
			}
			return nil, o.wrong("SecurePort", "secure-port",
				"listen on %s: %w; name another port, or 0 for any free one", address, err)
		}
	}
	tracked := &listener{Listener: l, open: map[net.Conn]struct{}{}}
	u.push("connections", tracked.closeAll)
	return tracked, nil
}

// listener tracks the connections that it accepts so that it can close them. After Shutdown, an
// HTTP/2 server would keep idle connections open for another second.
type listener struct {
	net.Listener
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

func (l *listener) Accept() (net.Conn, error) {
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

// closeAll closes the port and all connections. It may be called more than once.
func (l *listener) closeAll() error {
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

type conn struct {
	net.Conn
	listener *listener
}

func (c *conn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
