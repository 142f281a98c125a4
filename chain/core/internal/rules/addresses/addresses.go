package addresses

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// IP checks an address in one of the fields that once took leading zeros and IPv4-mapped IPv6 (KEP-4858): values that the old object
// holds stay allowed.
func IP(path *field.Path, value string, old []string) field.ErrorList {
	return validation.IsValidIPForLegacyField(path, value, true, old)
}

// CIDR is [IP] for address blocks.
func CIDR(path *field.Path, value string, old []string) field.ErrorList {
	return validation.IsValidCIDRForLegacyField(path, value, true, old)
}

// RoutableIP refuses the addresses that mean something else on every host and so lead nowhere when handed to another one.
func RoutableIP(path *field.Path, value string) field.ErrorList {
	ip := netutils.ParseIPSloppy(value)
	switch {
	case ip == nil:
		return field.ErrorList{field.Invalid(path, value, "is no IP address")}
	case ip.IsUnspecified():
		return field.ErrorList{field.Invalid(path, value, "must not be the unspecified address (0.0.0.0, ::)")}
	case ip.IsLoopback():
		return field.ErrorList{field.Invalid(path, value, "must not be a loopback address (127.0.0.0/8, ::1)")}
	case ip.IsLinkLocalUnicast():
		return field.ErrorList{field.Invalid(path, value, "must not be a link-local address (169.254.0.0/16, fe80::/10)")}
	case ip.IsLinkLocalMulticast():
		return field.ErrorList{field.Invalid(path, value, "must not be a link-local multicast address (224.0.0.0/24, ff02::/10)")}
	}
	return nil
}

// LoadBalancerIngress checks an address and a host name under which a load balancer is reached; either may be empty.
func LoadBalancerIngress(path *field.Path, ip, hostname string, oldIPs []string) field.ErrorList {
	var errs field.ErrorList
	if ip != "" {
		errs = append(errs, IP(path.Child("ip"), ip, oldIPs)...)
	}
	if hostname != "" {
		for _, msg := range validation.IsDNS1123Subdomain(hostname) {
			errs = append(errs, field.Invalid(path.Child("hostname"), hostname, msg))
		}
		if netutils.ParseIPSloppy(hostname) != nil {
			errs = append(errs, field.Invalid(path.Child("hostname"), hostname, "is an IP address; a DNS name belongs here"))
		}
	}
	return errs
}

// IsCIDR reports whether value is an address block, in however lax a form.
func IsCIDR(value string) bool {
	_, _, err := netutils.ParseCIDRSloppy(value)
	return err == nil
}

// StrictSubnet reports whether inner is a part, and not the whole, of outer. Both must be valid CIDRs; a wrong one is part of nothing.
func StrictSubnet(outer, inner string) bool {
	_, o, err := netutils.ParseCIDRSloppy(outer)
	if err != nil {
		return false
	}
	_, i, err := netutils.ParseCIDRSloppy(inner)
	if err != nil {
		return false
	}
	outerBits, _ := o.Mask.Size()
	innerBits, _ := i.Mask.Size()
	return o.Contains(i.IP) && innerBits > outerBits
}

// Parse reads addresses as leniently as they were once accepted; the zero Addr stands for anything else.
func Parse(value string) netip.Addr {
	addr, _ := netip.AddrFromSlice(netutils.ParseIPSloppy(value))
	return addr.Unmap()
}
