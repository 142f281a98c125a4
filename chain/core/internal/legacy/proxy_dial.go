package legacy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// errLocalAddress is the error for an address that a proxy may not connect to. Permission to write
// the endpoints of a service, or the status of a pod or a node, must not give access to the machine
// that the server runs on, or to services that listen next to it.
var errLocalAddress = errors.New(
	"address not allowed: the proxies to services, pods and nodes connect to loopback, link-local, " +
		"multicast and unspecified addresses only if the server runs with --proxy-allow-local-addresses")

// proxyDialer makes the connections of the proxies.
type proxyDialer struct {
	// local allows the addresses that errLocalAddress lists.
	local bool
}

// check returns an error if connections to the address are not allowed.
func (d proxyDialer) check(address netip.Addr) error {
	if d.local || address.Unmap().WithZone("").IsGlobalUnicast() {
		return nil
	}
	return fmt.Errorf("%s: %w", address, errLocalAddress)
}

// transport returns a transport that uses no other proxy, which would connect to any address. It
// checks the address that the system is about to connect to, whatever a name resolved to and
// wherever the address came from.
func (d proxyDialer) transport() *http.Transport {
	dialer := &net.Dialer{
		Timeout:   30 * time.Second,
		KeepAlive: 30 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			resolved, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("connect to %s: %w", address, err)
			}
			return d.check(resolved.Addr())
		},
	}
	return &http.Transport{
		DialContext:       dialer.DialContext,
		DisableKeepAlives: true,
		Proxy:             func(*http.Request) (*url.URL, error) { return nil, nil },
	}
}
