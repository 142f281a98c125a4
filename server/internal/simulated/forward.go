package simulated

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kinproc/kinproc/chain/core"
)

// Ports are ranges of loopback ports. Whoever may create pods can reach these ports by annotations,
// so who starts the control plane chooses them.
type Ports []portRange

type portRange struct{ first, last uint16 }

// ParsePorts parses ports and ranges of them, such as 8080 and 9000-9010.
func ParsePorts(texts []string) (Ports, error) {
	var ports Ports
	for _, text := range texts {
		first, last, isRange := strings.Cut(text, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
		to, err2 := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
		if err != nil || err2 != nil || from == 0 || to < from {
			return nil, fmt.Errorf("%q is not a port such as 8080, or a range such as 9000-9010", text)
		}
		ports = append(ports, portRange{uint16(from), uint16(to)})
	}
	return ports, nil
}

func (p Ports) has(port uint16) bool {
	for _, r := range p {
		if r.first <= port && port <= r.last {
			return true
		}
	}
	return false
}

// connectTimeout is how long a connection to a loopback port may take.
const connectTimeout = 5 * time.Second

// Ports implements core.Kubelet.
func (k *Kubelet) Ports(p *corev1.Pod) (core.Dial, error) {
	behaves := k.Behaviors.Of(p)
	any := false
	for key := range behaves.Annotations {
		any = any || strings.HasPrefix(key, forwardPrefix)
	}
	if !any {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s is simulated: no container runs on node "+
			"%s to connect to, and no annotation such as %s80 names a process that stands in", p.Name,
			p.Spec.NodeName, forwardPrefix))
	}
	return func(ctx context.Context, port int32) (net.Conn, error) {
		to, err := k.standIn(behaves, port)
		if err != nil {
			return nil, err
		}
		dialer := net.Dialer{Timeout: connectTimeout}
		conn, err := dialer.DialContext(ctx, "tcp", to.String())
		if err != nil {
			return nil, fmt.Errorf("nothing listens at %s, which stands in for port %d of pod %s", to, port,
				p.Name)
		}
		return conn, nil
	}, nil
}

// standIn returns the address of what stands in for a port of a pod.
func (k *Kubelet) standIn(p *corev1.Pod, port int32) (netip.AddrPort, error) {
	key := forwardPrefix + strconv.Itoa(int(port))
	text, ok := p.Annotations[key]
	if !ok {
		return netip.AddrPort{}, apierrors.NewBadRequest(fmt.Sprintf(
			"pod %s is simulated: no annotation %s names a process that stands in for the port", p.Name, key))
	}
	to, err := loopback(strings.TrimSpace(text))
	if err != nil {
		return netip.AddrPort{}, apierrors.NewBadRequest(fmt.Sprintf("annotation %s of pod %s: %v", key,
			p.Name, err))
	}
	if !k.Open.has(to.Port()) {
		return netip.AddrPort{}, apierrors.NewForbidden(corev1.Resource("pods"), p.Name, fmt.Errorf(
			"annotation %s names port %d of this machine: start kinproc with --stand-in-ports=%d to let pods "+
				"connect to it", key, to.Port(), to.Port()))
	}
	return to, nil
}

// loopback parses a loopback address with a port, or a port alone. No name is looked up.
func loopback(text string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = "127.0.0.1", text
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	addr, err := netip.ParseAddr(host)
	number, err2 := strconv.ParseUint(port, 10, 16)
	if err != nil || err2 != nil || number == 0 || !addr.Unmap().IsLoopback() || addr.Zone() != "" {
		return netip.AddrPort{}, fmt.Errorf("%q is not a loopback address such as 127.0.0.1:8080", text)
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(number)), nil
}
