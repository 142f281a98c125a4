package sandbox

import (
	"errors"
	"net"
	"strconv"
	"syscall"
)

// Listen opens a port of a sandbox or, if it is in use, any free one. If the address cannot be used
// at all, there is neither a listener nor an error: the server says what is wrong with it.
func Listen(address string, port int) (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	switch {
	case err == nil:
		return l, nil
	case !errors.Is(err, syscall.EADDRINUSE):
		return nil, nil
	}
	return listenNear(address, port)
}

// portsTried is how many ports to try in a row. They are better than ones that the system picks,
// which it may have given to somebody's connection at the next start.
const portsTried = 100

// listenNear opens the first free port above one, or any. It leaves out the ports that other
// sandboxes of the user keep, so that these find them free when they start again.
func listenNear(address string, port int) (net.Listener, error) {
	kept := map[int]bool{}
	all, _ := OfUser() // without them, the sandboxes move out of each other's way later
	for _, s := range all {
		kept[s.Port] = true
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
