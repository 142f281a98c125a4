package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// listen opens the port of a sandbox for which nobody has named one: the port that the sandbox has
// had, or else the default one. If that is in use, it takes any free port. A port that was named is
// left to the server, which says what is wrong with it. The notice says that the port is another
// one; it is for a start that has succeeded, since others keep nothing.
func (o *startOptions) listen() (l net.Listener, notice string, err error) {
	if _, named := o.setTo("secure-port"); named || o.server.SecurePort == 0 {
		return nil, "", nil
	}
	wanted := cmp.Or(o.memory.Port, o.server.SecurePort)
	l, err = net.Listen("tcp", net.JoinHostPort(o.server.BindAddress, strconv.Itoa(wanted)))
	if err == nil {
		return l, "", nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		o.server.SecurePort = wanted
		return nil, "", nil
	}
	if l, err = listenNear(o.server.BindAddress, wanted); err != nil {
		return nil, "", fmt.Errorf("--secure-port: find a free port: %w", err)
	}
	kept := ", and keeps that one"
	if o.ephemeral {
		kept = ""
	}
	return l, fmt.Sprintf("kinproc: port %d is in use; this sandbox takes %d%s\n", wanted,
		portOf(l.Addr().String()), kept), nil
}

// portsTried is how many ports to try in a row. They are better than ones that the system picks,
// which it may have given to somebody's connection at the next start.
const portsTried = 100

// listenNear opens the first free port above one, or any. It leaves out the ports that other
// sandboxes of the user keep, so that these find them free when they start again.
func listenNear(address string, port int) (net.Listener, error) {
	kept := map[int]bool{}
	all, _ := sandboxesOfUser() // without them, the sandboxes move out of each other's way later
	for _, l := range all {
		kept[l.Port] = true
	}
	for next := port + 1; next <= min(port+portsTried, 65535); next++ {
		if kept[next] {
			continue
		}
		if l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(next))); err == nil {
			return l, nil
		}
	}
	return net.Listen("tcp", net.JoinHostPort(address, "0"))
}
