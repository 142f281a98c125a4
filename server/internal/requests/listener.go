package requests

import (
	"errors"
	"fmt"
	"net"

	"github.com/kinproc/kinproc/server/internal/option"
	"github.com/kinproc/kinproc/server/internal/requests/connections"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// ListenConfig says where to listen.
type ListenConfig struct {
	// Listener, if set, is used instead of Host and Port.
	Listener net.Listener
	Listen   func(network, address string) (net.Listener, error)
	Host     string
	Port     int
	Names    option.Names
}

// Listen opens the port, or takes the listener that there is.
func Listen(c ListenConfig, s *stopper.Stopper) (*connections.Listener, error) {
	address := net.JoinHostPort(c.Host, fmt.Sprint(c.Port))
	l := c.Listener
	if l == nil {
		var err error
		if l, err = c.Listen("tcp", address); err != nil {
			if op := new(net.OpError); errors.As(err, &op) {
				err = op.Err // without the address, which the message has already
			}
			return nil, c.Names.Wrong("SecurePort",
				"listen on %s: %w; name another port, or 0 for any free one", address, err)
		}
	}
	tracked := connections.Track(l)
	s.Push("connections", tracked.CloseAll)
	return tracked, nil
}
