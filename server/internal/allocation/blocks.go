package allocation

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"
)

// block is the part of a CIDR that can be allocated to services: all addresses but the network
// address and, for IPv4, the broadcast address.
type block struct {
	prefix      netip.Prefix
	first, last netip.Addr
	size        uint64 // number of addresses from first to last
}

// minIPv6Bits limits the size of a block to 64 bits, as in kube-apiserver.
const minIPv6Bits = 64

func parseBlock(cidr string) (block, error) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return block{}, errors.New("it is not a range of addresses, such as " + DefaultServiceCIDR)
	}
	prefix = prefix.Masked()
	addr := prefix.Addr()
	if addr.Is6() && prefix.Bits() < minIPv6Bits {
		return block{}, fmt.Errorf("an IPv6 block must be /%d or smaller", minIPv6Bits)
	}
	hosts := addr.BitLen() - prefix.Bits()
	if hosts < 1 || addr.Is4() && hosts < 2 {
		return block{}, fmt.Errorf("%s is too small to contain an address for a service", prefix)
	}
	size := ^uint64(0)
	if hosts < 64 {
		size = 1<<hosts - 1
	}
	if addr.Is4() {
		size--
	}
	b := block{prefix: prefix, first: addr.Next(), size: size}
	b.last = b.at(size - 1)
	return b, nil
}

func (b block) family() corev1.IPFamily {
	if b.prefix.Addr().Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// contains reports whether addr can be allocated from the block.
func (b block) contains(addr netip.Addr) bool {
	return b.prefix.Contains(addr) && b.first.Compare(addr) <= 0 && addr.Compare(b.last) <= 0
}

// at returns the address with index i, counting from 0.
func (b block) at(i uint64) netip.Addr {
	n := new(big.Int).SetBytes(b.first.AsSlice())
	n.Add(n, new(big.Int).SetUint64(i))
	bytes := make([]byte, b.first.BitLen()/8)
	addr, _ := netip.AddrFromSlice(n.FillBytes(bytes))
	return addr
}

// staticPart returns the number of addresses at the start of the block that are allocated
// dynamically only when all others are used up, so that users can request specific ones (KEP-3070).
// It is a sixteenth of the block, between 16 and 256.
func (b block) staticPart() uint64 {
	if b.size <= 16 {
		return 0
	}
	return min(max(b.size/16, 16), 256)
}

// bands returns the two parts of [0,size) in the order in which they are used: the part above the
// static part, then the static part.
func bands(size, static uint64) [2]band { return [2]band{{static, size}, {0, static}} }

// band is the half-open interval [start,end).
type band struct{ start, end uint64 }

func (b band) random() uint64 { return b.start + rand.Uint64N(b.end-b.start) }

// each calls do for every number in the band, starting at a random one, until do returns false.
func (b band) each(do func(uint64) bool) {
	if b.start >= b.end {
		return
	}
	from := b.random()
	for n := from; n < b.end; n++ {
		if !do(n) {
			return
		}
	}
	for n := b.start; n < from; n++ {
		if !do(n) {
			return
		}
	}
}

// parseAddress accepts the same notation as the API: leading zeros are ignored, and IPv4-mapped
// IPv6 addresses are IPv4 (KEP-4858). It returns an invalid address if value cannot be parsed.
func parseAddress(value string) netip.Addr {
	addr, _ := netip.AddrFromSlice(netutils.ParseIPSloppy(value))
	return addr.Unmap()
}
