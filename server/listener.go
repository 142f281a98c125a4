package server

import (
	"errors"
	"fmt"
	"net"

	"github.com/kinproc/kinproc/server/internal/connections"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// listen opens the port, or uses the listener from the options.
func listen(o *Options, s *stopper.Stopper) (*connections.Listener, error) {
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
	tracked := connections.Track(l)
	s.Push("connections", tracked.CloseAll)
	return tracked, nil
}
