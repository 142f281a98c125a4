//go:build !linux

package program

import (
	"errors"
	"net"
	"time"
)

// Network is the network of this process, and its only value is a nil pointer.
type Network struct{}

// NewNetwork returns an error, because there are network namespaces on Linux only.
func NewNetwork() (*Network, error) {
	return nil, errors.New("only Linux has network namespaces")
}

// Close does nothing.
func (n *Network) Close() {}

func (n *Network) do(f func() error) error { return f() }

func (n *Network) listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

// Processors is what processors have done.
type Processors struct{ Running, Idle time.Duration }

// UsedProcessors returns zero.
func UsedProcessors() Processors { return Processors{} }
