package simulated

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The addresses of nodes are from a range that is reserved for benchmarks, so that they are nobody
// else's. That range is too small for pods.
const (
	hostRange = "198.18.0.0/15"
	// PodRange has the addresses of the pods on simulated nodes.
	PodRange = "10.128.0.0/9"
)

// ranges divides the range of pods among the nodes.
type ranges struct {
	hosts, pods netip.Prefix
	bits        int // of the prefix of each node
}

// rangesFor returns ranges in which each node has at least twice as many addresses as pods, so that
// an address is not used again soon.
func rangesFor(capacity corev1.ResourceList) ranges {
	pods := capacity.Pods().Value()
	r := ranges{hosts: netip.MustParsePrefix(hostRange), pods: netip.MustParsePrefix(PodRange)}
	r.bits = min(24, 32-bits.Len64(uint64(max(2*pods-1, 1))))
	return r
}

// check returns an error if there are not enough addresses for so many nodes.
func (r ranges) check(count int) error {
	if r.bits < r.pods.Bits() || count > r.count() {
		return fmt.Errorf("%d simulated nodes with so many pods each do not fit into %s", count, r.pods)
	}
	return nil
}

// count returns how many nodes have a range.
func (r ranges) count() int { return 1 << max(0, r.bits-r.pods.Bits()) }

func offset(base netip.Addr, by uint32) netip.Addr {
	b := base.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+by)
	return netip.AddrFrom4(b)
}

// host returns the address of a node.
func (r ranges) host(index int) netip.Addr { return offset(r.hosts.Addr(), uint32(index)+1) }

// pod returns the range of the pods on a node.
func (r ranges) pod(index int) netip.Prefix {
	return netip.PrefixFrom(offset(r.pods.Addr(), uint32(index)<<(32-r.bits)), r.bits)
}

// index returns which node's range an address is in. It means nothing for other addresses.
func (r ranges) index(addr netip.Addr) int {
	if !addr.Is4() {
		return -1
	}
	of, first := addr.As4(), r.pods.Addr().As4()
	return int(binary.BigEndian.Uint32(of[:])-binary.BigEndian.Uint32(first[:])) >> (32 - r.bits)
}

func (r ranges) pool(index int) pool {
	p := pool{prefix: r.pod(index), taken: map[netip.Addr]types.UID{}, of: map[types.UID]netip.Addr{}}
	p.next = p.prefix.Addr().Next().Next() // the network, and by custom the gateway, come before
	return p
}

// pool gives the addresses of a node to pods, in turn.
type pool struct {
	prefix netip.Prefix
	next   netip.Addr
	taken  map[netip.Addr]types.UID
	of     map[types.UID]netip.Addr
}

// take notes that a pod has an address already.
func (p *pool) take(uid types.UID, ip string) {
	addr, err := netip.ParseAddr(ip)
	if err != nil || !p.prefix.Contains(addr) || p.of[uid].IsValid() {
		return
	}
	if _, ok := p.taken[addr]; !ok {
		p.taken[addr], p.of[uid] = uid, addr
	}
}

// get returns the address of a pod. It is invalid if all are taken.
func (p *pool) get(uid types.UID) netip.Addr {
	if addr, ok := p.of[uid]; ok {
		return addr
	}
	for range 1 << (32 - p.prefix.Bits()) {
		addr := p.next
		if p.next = addr.Next(); !p.prefix.Contains(p.next.Next()) { // the last one is for broadcasts
			p.next = p.prefix.Addr().Next().Next()
		}
		if _, ok := p.taken[addr]; !ok {
			p.taken[addr], p.of[uid] = uid, addr
			return addr
		}
	}
	return netip.Addr{}
}

func (p *pool) release(uid types.UID) {
	delete(p.taken, p.of[uid])
	delete(p.of, uid)
}
