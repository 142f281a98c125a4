package addresses

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/features"
)

// IP validates an address in a field that once accepted leading zeros and IPv4-mapped IPv6
// addresses (KEP-4858). Such values are still allowed if the old object contains them or
// StrictIPCIDRValidation is off.
func IP(path *field.Path, value string, old sets.Set[string]) field.ErrorList {
	if old.Has(value) {
		return nil
	}
	return validation.IsValidIPForLegacyField(path, value, strict(), nil)
}

// CIDR is like [IP], but for address blocks.
func CIDR(path *field.Path, value string, old sets.Set[string]) field.ErrorList {
	if old.Has(value) {
		return nil
	}
	return validation.IsValidCIDRForLegacyField(path, value, strict(), nil)
}

func strict() bool { return features.Enabled(features.StrictIPCIDRValidation) }

// RoutableIP rejects addresses that mean something different on every host and so cannot be reached
// from another one.
func RoutableIP(path *field.Path, value string) field.ErrorList {
	ip := netutils.ParseIPSloppy(value)
	switch {
	case ip == nil:
		return field.ErrorList{field.Invalid(path, value, "must be a valid IP address")}
	case ip.IsUnspecified():
		return field.ErrorList{
			field.Invalid(path, value, "must not be the unspecified address (0.0.0.0, ::)"),
		}
	case ip.IsLoopback():
		return field.ErrorList{
			field.Invalid(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
		}
	case ip.IsLinkLocalUnicast():
		return field.ErrorList{
			field.Invalid(path, value, "must not be a link-local address (169.254.0.0/16, fe80::/10)"),
		}
	case ip.IsLinkLocalMulticast():
		return field.ErrorList{field.Invalid(path, value,
			"must not be a link-local multicast address (224.0.0.0/24, ff02::/10)")}
	}
	return nil
}

// LoadBalancerIngress validates the IP address and hostname of a load balancer. Either may be
// empty.
func LoadBalancerIngress(
	path *field.Path, ip, hostname string, oldIPs sets.Set[string],
) field.ErrorList {
	var errs field.ErrorList
	if ip != "" {
		errs = append(errs, IP(path.Child("ip"), ip, oldIPs)...)
	}
	if hostname != "" {
		errs = append(errs, rules.Invalid(path.Child("hostname"), hostname,
			validation.IsDNS1123Subdomain(hostname))...)
		if netutils.ParseIPSloppy(hostname) != nil {
			errs = append(errs, field.Invalid(path.Child("hostname"), hostname,
				"must be a DNS name, not an IP address"))
		}
	}
	return errs
}

// IsCIDR reports whether value is an address block, including legacy forms.
func IsCIDR(value string) bool {
	_, _, err := netutils.ParseCIDRSloppy(value)
	return err == nil
}

// StrictSubnet reports whether inner is a proper subset of outer. It returns false if either is not
// a valid CIDR.
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

// Parse parses an address in any form that was ever accepted. It returns the zero Addr for anything
// else.
func Parse(value string) netip.Addr {
	addr, _ := netip.AddrFromSlice(netutils.ParseIPSloppy(value))
	return addr.Unmap()
}
