package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"google.golang.org/grpc/test/bufconn"
)

// Network is a network in memory, which only those who have the value can reach. See
// [Options].Network. It is safe for concurrent use.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*networkListener
	nextPort  int
}

// NewNetwork returns a network.
func NewNetwork() *Network {
	return &Network{listeners: map[string]*networkListener{}, nextPort: 49152}
}

// networkBuffer is the number of bytes that a connection holds in each direction until they are
// read.
const networkBuffer = 64 << 10

// Listen is like [net.Listen] for TCP. The host of the address must be an IP address; any one will
// do.
func (n *Network) Listen(network, address string) (net.Listener, error) {
	a, err := net.ResolveTCPAddr(network, address)
	if err != nil {
		return nil, fmt.Errorf("listen in memory: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for a.Port == 0 {
		if n.listeners[(&net.TCPAddr{IP: a.IP, Port: n.nextPort}).String()] == nil {
			a.Port = n.nextPort
		}
		n.nextPort++
	}
	if n.listeners[a.String()] != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: a, Err: syscall.EADDRINUSE}
	}
	l := &networkListener{Listener: bufconn.Listen(networkBuffer), address: a, network: n}
	n.listeners[a.String()] = l
	return l, nil
}

// DialContext is like the method of [net.Dialer] for TCP.
func (n *Network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s: %w", address,
			syscall.ECONNREFUSED)}
	}
	c, err := l.DialContext(ctx)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: l.address, Err: err}
	}
	return networkConn{c, &net.TCPAddr{IP: l.address.IP}, l.address}, nil
}

type networkListener struct {
	*bufconn.Listener
	address *net.TCPAddr
	network *Network
}

// Accept implements net.Listener.
func (l *networkListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, errors.Join(net.ErrClosed, err)
	}
	return networkConn{c, l.address, &net.TCPAddr{IP: l.address.IP}}, nil
}

// Close implements net.Listener.
func (l *networkListener) Close() error {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.network.listeners[l.address.String()] == l {
		delete(l.network.listeners, l.address.String())
	}
	return l.Listener.Close()
}

// Addr implements net.Listener.
func (l *networkListener) Addr() net.Addr { return l.address }

// networkConn is one side of a connection.
type networkConn struct {
	net.Conn
	local, remote net.Addr
}

// LocalAddr implements net.Conn.
func (c networkConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c networkConn) RemoteAddr() net.Addr { return c.remote }
