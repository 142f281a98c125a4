package allocation

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"
)

// block is the part of a CIDR that can be given to services: all but the network's own address and, of IPv4, the broadcast address.
type block struct {
	prefix      netip.Prefix
	first, last netip.Addr
	size        uint64 // number of addresses from first to last
}

// minIPv6Bits keeps the size of a block within 64 bits, as kube-apiserver does.
const minIPv6Bits = 64

func parseBlock(cidr string) (block, error) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return block{}, err
	}
	prefix = prefix.Masked()
	addr := prefix.Addr()
	if addr.Is6() && prefix.Bits() < minIPv6Bits {
		return block{}, fmt.Errorf("an IPv6 block must be /%d or smaller", minIPv6Bits)
	}
	hosts := addr.BitLen() - prefix.Bits()
	if hosts < 1 || addr.Is4() && hosts < 2 {
		return block{}, fmt.Errorf("%s has no address for a service", prefix)
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

// contains reports whether a service may have addr.
func (b block) contains(addr netip.Addr) bool {
	return b.prefix.Contains(addr) && b.first.Compare(addr) <= 0 && addr.Compare(b.last) <= 0
}

// at is the address with number i, from 0.
func (b block) at(i uint64) netip.Addr {
	n := new(big.Int).SetBytes(b.first.AsSlice())
	n.Add(n, new(big.Int).SetUint64(i))
	bytes := make([]byte, b.first.BitLen()/8)
	addr, _ := netip.AddrFromSlice(n.FillBytes(bytes))
	return addr
}

// staticPart is the number of addresses at the start of the block that are given away unasked only when the others are used up, so that
// people can choose among them (KEP-3070): a sixteenth, between 16 and 256.
func (b block) staticPart() uint64 {
	if b.size <= 16 {
		return 0
	}
	return min(max(b.size/16, 16), 256)
}

// bands are the two parts of [0,size), in the order in which they are used: above the static part, then the static part itself.
func bands(size, static uint64) [2]band { return [2]band{{static, size}, {0, static}} }

// band is the numbers from start to below end.
type band struct{ start, end uint64 }

func (b band) random() uint64 { return b.start + rand.Uint64N(b.end-b.start) }

// each calls do with every number of the band, starting at a random one, until it returns false.
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

// parseAddress takes what the API takes: leading zeros and IPv4-mapped IPv6 are IPv4 (KEP-4858). The
// address is invalid if value is none.
func parseAddress(value string) netip.Addr {
	addr, _ := netip.AddrFromSlice(netutils.ParseIPSloppy(value))
	return addr.Unmap()
}
