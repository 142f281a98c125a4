package simulated

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

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

// index returns which node's range an address of a pod is in, or -1.
func (r ranges) index(addr netip.Addr) int {
	if !r.pods.Contains(addr) {
		return -1
	}
	return distance(r.pods.Addr(), addr) >> (32 - r.bits)
}

// hostIndex returns which node has an address, or -1.
func (r ranges) hostIndex(addr netip.Addr) int {
	if i := distance(r.hosts.Addr(), addr) - 1; r.hosts.Contains(addr) && i < r.count() {
		return i
	}
	return -1
}

// distance returns how far an address is from another one. It means nothing for addresses of IPv6.
func distance(from, to netip.Addr) int {
	if !to.Is4() {
		return 0
	}
	first, last := from.As4(), to.As4()
	return int(binary.BigEndian.Uint32(last[:])) - int(binary.BigEndian.Uint32(first[:]))
}

// pool gives the addresses of a node to pods, in turn.
type pool struct {
	prefixes []netip.Prefix
	turn     int // of prefixes
	next     netip.Addr
	taken    map[netip.Addr]types.UID
	of       map[types.UID]netip.Addr
}

// add adds a range to the pool. Its addresses come after those that the pool has.
func (p *pool) add(prefix netip.Prefix) {
	p.prefixes = append(p.prefixes, prefix)
	if len(p.prefixes) == 1 {
		p.next = first(prefix)
	}
}

// first returns the first address of a range that a pod can have. The network, and by custom the
// gateway, come before.
func first(of netip.Prefix) netip.Addr { return of.Addr().Next().Next() }

func (p *pool) put(uid types.UID, addr netip.Addr) {
	if p.taken == nil {
		p.taken, p.of = map[netip.Addr]types.UID{}, map[types.UID]netip.Addr{}
	}
	p.taken[addr], p.of[uid] = uid, addr
}

// take notes that a pod has an address already.
func (p *pool) take(uid types.UID, addr netip.Addr) {
	if p.of[uid].IsValid() ||
		!slices.ContainsFunc(p.prefixes, func(r netip.Prefix) bool { return r.Contains(addr) }) {
		return
	}
	if _, ok := p.taken[addr]; !ok {
		p.put(uid, addr)
	}
}

// get returns the address of a pod. It is invalid if all are taken.
func (p *pool) get(uid types.UID) netip.Addr {
	if addr, ok := p.of[uid]; ok {
		return addr
	}
	for _, prefix := range p.prefixes {
		for range 1 << (32 - prefix.Bits()) {
			addr := p.next
			// the last address of a range is for broadcasts
			if p.next = addr.Next(); !p.prefixes[p.turn].Contains(p.next.Next()) {
				p.turn = (p.turn + 1) % len(p.prefixes)
				p.next = first(p.prefixes[p.turn])
			}
			if _, ok := p.taken[addr]; !ok {
				p.put(uid, addr)
				return addr
			}
		}
	}
	return netip.Addr{}
}

func (p *pool) release(uid types.UID) {
	delete(p.taken, p.of[uid])
	delete(p.of, uid)
}

// reserve gives a node a range of addresses, unless the range is another node's or does not exist.
// Nodes.mu is held.
func (n *Nodes) reserve(node *node, index int) {
	if index < 0 || index >= n.ranges.count() || n.byIndex[index] != nil {
		return
	}
	n.byIndex[index] = node
	if len(node.indices) == 0 {
		node.index = index
	}
	node.indices = append(node.indices, index)
	node.ips.add(n.ranges.pod(index))
}

// reserveNext gives a node the next range that is free. It reports whether there is one. Ranges are
// given in turn, so that one is not used again soon. Nodes.mu is held.
func (n *Nodes) reserveNext(node *node) bool {
	for range n.ranges.count() {
		index := n.nextIndex
		n.nextIndex = (index + 1) % n.ranges.count()
		if n.byIndex[index] == nil {
			n.reserve(node, index)
			return true
		}
	}
	return false
}

// reserveOf gives a node of others the ranges that it has according to its API object: those that
// it got at an earlier start, or that its maker chose. Nodes.mu is held.
func (n *Nodes) reserveOf(node *node, found *corev1.Node) {
	for _, a := range found.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			n.reserve(node, n.ranges.hostIndex(addr))
		}
	}
	if prefix, err := netip.ParsePrefix(found.Spec.PodCIDR); err == nil {
		n.reserve(node, n.ranges.index(prefix.Addr()))
	}
}

// take notes that a pod has an address already. A range of nobody's becomes that of the pod's node.
// Nodes.mu is held.
func (n *Nodes) take(node *node, p *corev1.Pod) {
	if addr, err := netip.ParseAddr(p.Status.PodIP); err == nil {
		n.reserve(node, n.ranges.index(addr))
		n.holder(node, p).ips.take(p.UID, addr)
	}
}

// holder returns the node whose range the address of a pod is in. That is another one than the
// pod's if the ranges have moved since an earlier start. Nodes.mu is held.
func (n *Nodes) holder(node *node, p *corev1.Pod) *node {
	if addr, err := netip.ParseAddr(p.Status.PodIP); err == nil {
		if other := n.byIndex[n.ranges.index(addr)]; other != nil {
			return other
		}
	}
	return node
}
