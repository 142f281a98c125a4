package legacy

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/addresses"
)

// The fields clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy say one thing four times (KEP-563). Clients write any of them; what is
// stored has all of them, in agreement.

func familyOf(ip netip.Addr) corev1.IPFamily {
	if ip.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// adoptAllocated fills in what was allocated for old and what an update may leave out.
func adoptAllocated(s, old *corev1.Service) {
	to, from := &s.Spec, &old.Spec
	if hasClusterIP(s) && hasClusterIP(old) {
		if to.ClusterIP == "" {
			to.ClusterIP = from.ClusterIP
		}
		if len(to.ClusterIPs) == 0 {
			to.ClusterIPs = from.ClusterIPs
		}
	}
	if allocatesNodePorts(s) && allocatesNodePorts(old) {
		used := heldNodePorts(s)
		byName := map[string]int32{}
		for _, p := range from.Ports {
			byName[p.Name] = p.NodePort
		}
		for i := range to.Ports {
			p := &to.Ports[i]
			if known := byName[p.Name]; p.NodePort == 0 && !used.Has(known) {
				p.NodePort = known // which two ports may share, over different protocols
			}
		}
	}
	if hasHealthCheck(s) && hasHealthCheck(old) && to.HealthCheckNodePort == 0 {
		to.HealthCheckNodePort = from.HealthCheckNodePort
	}
}

// syncClusterIPs lets clients that know clusterIP only have their way: clusterIPs follows it. Old is nil for a new service.
func syncClusterIPs(s, old *corev1.Service) {
	spec := &s.Spec
	switch {
	case old == nil:
		if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = []string{spec.ClusterIP}
		}
	case spec.ClusterIP == old.Spec.ClusterIP:
		if len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = old.Spec.ClusterIPs
		}
	case slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs):
		spec.ClusterIPs = nil
		if spec.ClusterIP != "" {
			spec.ClusterIPs = []string{spec.ClusterIP}
		}
	}
}

// completeStored fills in what services stored by API servers before dual-stack lack, and hides what means nothing for an ExternalName. Families are the cluster's.
func completeStored(s *corev1.Service, families []corev1.IPFamily) {
	syncClusterIPs(s, nil)
	if !hasClusterIP(s) {
		s.Spec.InternalTrafficPolicy = nil
		return
	}
	if s.Spec.ClusterIP == "" { // such as the empty one of a bookmark
		return
	}
	if len(s.Spec.IPFamilies) > 0 {
		return
	}
	if s.Spec.IPFamilyPolicy == nil {
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	}
	for _, ip := range s.Spec.ClusterIPs {
		if addr := addresses.Parse(ip); addr.IsValid() {
			s.Spec.IPFamilies = append(s.Spec.IPFamilies, familyOf(addr))
		}
	}
	if len(s.Spec.IPFamilies) == 0 && len(families) > 0 {
		s.Spec.IPFamilies = families[:1:1]
	}
}

// chooseFamilies settles ipFamilyPolicy and ipFamilies, from what the client wrote, old (nil for a new service) and what the cluster
// has. Addresses are not chosen here, but clusterIPs loses its second one when the policy becomes SingleStack.
func chooseFamilies(s, old *corev1.Service, cluster []corev1.IPFamily) field.ErrorList {
	if !hasClusterIP(s) || keepsPreferDualStack(s, old) {
		return nil
	}
	spec := &s.Spec
	open := spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0 // headless, endpoints of the user's making
	choosePolicy(spec, old, open)
	if errs := validateClusterIPs(s, old); len(errs) > 0 {
		return errs
	}
	errs := fitPolicy(s, old)
	for i, ip := range spec.ClusterIPs {
		if ip == corev1.ClusterIPNone || i < len(spec.IPFamilies) {
			continue
		}
		family := familyOf(addresses.Parse(ip))
		if slices.Contains(cluster, family) {
			spec.IPFamilies = append(slices.Clone(spec.IPFamilies), family)
		} else {
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(i), ip, fmt.Sprintf("is of %s, which this cluster has not", family)))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	dual := *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack
	if !open {
		if *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(cluster) < 2 {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), *spec.IPFamilyPolicy, "this cluster has one IP family only"))
		}
		for i, family := range spec.IPFamilies {
			if !slices.Contains(cluster, family) {
				errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), family, "this cluster has none of these addresses"))
			}
		}
		if len(errs) > 0 {
			return errs
		}
		dual = dual && len(cluster) == 2
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = cluster[:1:1]
	}
	if dual && len(spec.IPFamilies) == 1 {
		spec.IPFamilies = []corev1.IPFamily{spec.IPFamilies[0], otherFamily(spec.IPFamilies[0])}
	}
	return nil
}

// keepsPreferDualStack tells updates that leave a PreferDualStack service as it is: whether it has one family or two must not follow the
// cluster's own change from one to the other.
func keepsPreferDualStack(s, old *corev1.Service) bool {
	prefers := func(s *corev1.Service) bool {
		return s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack
	}
	return old != nil && old.Spec.Type == s.Spec.Type && prefers(s) && prefers(old) && sameClusterIPs(s, old) &&
		slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies)
}

func choosePolicy(spec *corev1.ServiceSpec, old *corev1.Service, open bool) {
	switch {
	case spec.IPFamilyPolicy != nil:
	case old != nil && old.Spec.IPFamilyPolicy != nil:
		spec.IPFamilyPolicy = new(*old.Spec.IPFamilyPolicy)
	case open:
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	default:
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	}
}

// fitPolicy judges the number of addresses and families by the policy, and takes SingleStack for the wish to give up the second ones.
func fitPolicy(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	spec, path := &s.Spec, field.NewPath("spec", "ipFamilyPolicy")
	if *spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack {
		if old != nil && sameClusterIPs(s, old) && len(spec.ClusterIPs) > 1 {
			spec.ClusterIPs = spec.ClusterIPs[:1:1]
		}
		if old != nil && slices.Equal(spec.IPFamilies, old.Spec.IPFamilies) && len(spec.IPFamilies) > 1 {
			spec.IPFamilies = spec.IPFamilies[:1:1]
		}
		if len(spec.ClusterIPs) > 1 {
			errs = append(errs, field.Invalid(path, *spec.IPFamilyPolicy, "does not go with two clusterIPs"))
		}
		if len(spec.IPFamilies) > 1 {
			errs = append(errs, field.Invalid(path, *spec.IPFamilyPolicy, "does not go with two ipFamilies"))
		}
		return errs
	}
	if old == nil || !hasClusterIP(old) {
		return nil
	}
	if n := len(spec.ClusterIPs); n > 0 && n < len(old.Spec.ClusterIPs) {
		errs = append(errs, field.Invalid(path, *spec.IPFamilyPolicy, "must be SingleStack for the second cluster IP to be given up"))
	}
	if n := len(spec.IPFamilies); n > 0 && n < len(old.Spec.IPFamilies) {
		errs = append(errs, field.Invalid(path, *spec.IPFamilyPolicy, "must be SingleStack for the second IP family to be given up"))
	}
	return errs
}

// validateClusterIPs checks the four fields by themselves and against each other.
func validateClusterIPs(s, old *corev1.Service) field.ErrorList {
	if !hasClusterIP(s) {
		return nil // validateType refuses them
	}
	var errs field.ErrorList
	spec, path := &s.Spec, field.NewPath("spec")
	ips := path.Child("clusterIPs")
	switch {
	case spec.ClusterIP == "":
		if len(spec.ClusterIPs) > 0 {
			errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "goes with clusterIP, which is empty"))
		}
	case len(spec.ClusterIPs) == 0:
		errs = append(errs, field.Required(ips, "goes with clusterIP"))
	case spec.ClusterIPs[0] != spec.ClusterIP:
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "must start with clusterIP"))
	}

	seen := sets.New[corev1.IPFamily]()
	for i, family := range spec.IPFamilies {
		familyPath := path.Child("ipFamilies").Index(i)
		if family != corev1.IPv4Protocol && family != corev1.IPv6Protocol {
			errs = append(errs, field.NotSupported(familyPath, family, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}))
		}
		if seen.Has(family) {
			errs = append(errs, field.Duplicate(familyPath, family))
		}
		seen.Insert(family)
	}
	if p := spec.IPFamilyPolicy; p != nil {
		known := []corev1.IPFamilyPolicy{corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack}
		if !slices.Contains(known, *p) {
			errs = append(errs, field.NotSupported(path.Child("ipFamilyPolicy"), *p, known))
		}
	}

	var oldIPs []string
	if old != nil {
		oldIPs = old.Spec.ClusterIPs
	}
	wrong := false
	for i, ip := range spec.ClusterIPs {
		if ip == corev1.ClusterIPNone && i == 0 {
			if len(spec.ClusterIPs) > 1 {
				errs, wrong = append(errs, field.Invalid(ips, spec.ClusterIPs, "must be None or addresses")), true
			}
			continue
		}
		bad := addresses.IP(ips.Index(i), ip, oldIPs)
		errs, wrong = append(errs, bad...), wrong || len(bad) > 0
	}
	if len(spec.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "must not be more than one of each IP family"))
	}
	if wrong || isHeadless(s) {
		return errs
	}
	return append(errs, validateFamiliesOfIPs(spec, path)...)
}

// validateFamiliesOfIPs compares addresses, known to be well formed, with the families.
func validateFamiliesOfIPs(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	ips := path.Child("clusterIPs")
	found := sets.New[corev1.IPFamily]()
	for i, ip := range spec.ClusterIPs {
		family := familyOf(addresses.Parse(ip))
		found.Insert(family)
		if i < len(spec.IPFamilies) && spec.IPFamilies[i] == otherFamily(family) {
			errs = append(errs, field.Invalid(ips.Index(i), ip, fmt.Sprintf("is not of %s, as ipFamilies[%d] has it", spec.IPFamilies[i], i)))
		}
	}
	// Two addresses are one of each family; more are refused for their number already, and for this.
	if len(spec.ClusterIPs) > 1 && (len(found) < 2 || len(spec.ClusterIPs) > 2) {
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "must not be more than one of each IP family"))
	}
	return errs
}
