package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
)

// listen opens the port of a sandbox for which nobody has named one: the port that the sandbox has
// had, or else the default one. If that is in use, it takes any free port. A port that was named is
// left to the server, which says what is wrong with it.
func (o *startOptions) listen(w io.Writer) (net.Listener, error) {
	if _, named := o.portSetting(); named || o.server.SecurePort == 0 {
		return nil, nil
	}
	wanted := cmp.Or(o.memory.Port, o.server.SecurePort)
	l, err := net.Listen("tcp", net.JoinHostPort(o.server.BindAddress, strconv.Itoa(wanted)))
	if err == nil {
		return l, nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		o.server.SecurePort = wanted
		return nil, nil
	}
	l, err = net.Listen("tcp", net.JoinHostPort(o.server.BindAddress, "0"))
	if err != nil {
		return nil, fmt.Errorf("--secure-port: find a free port: %w", err)
	}
	kept := ", and keeps that one"
	if o.ephemeral {
		kept = ""
	}
	fmt.Fprintf(w, "kinproc: port %d is in use; this sandbox takes %d%s\n", wanted,
		portOf(l.Addr().String()), kept)
	return l, nil
}
