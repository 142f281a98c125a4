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

// The fields clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy overlap (KEP-563). Clients may
// set any of them. In a stored service, all of them are set and consistent.

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

// adoptAllocated copies allocated values that an update may omit from old.
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
				p.NodePort = known // two ports may share it, over different protocols
			}
		}
	}
	if hasHealthCheck(s) && hasHealthCheck(old) && to.HealthCheckNodePort == 0 {
		to.HealthCheckNodePort = from.HealthCheckNodePort
	}
}

// syncClusterIPs makes clusterIPs follow clusterIP, for clients that only know clusterIP. old is
// nil for a new service.
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

// completeStored sets the fields that are missing in services stored by API servers before
// dual-stack. It clears internalTrafficPolicy for ExternalName services, where the field has no
// meaning. families are the IP families of the cluster.
func completeStored(s *corev1.Service, families []corev1.IPFamily) {
	syncClusterIPs(s, nil)
	if !hasClusterIP(s) {
		s.Spec.InternalTrafficPolicy = nil
		return
	}
	if s.Spec.ClusterIP == "" { // for example, the empty service in a bookmark
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

// chooseFamilies sets ipFamilyPolicy and ipFamilies from what the client specified, old (nil for a
// new service) and the families of the cluster. It allocates no addresses, but it removes the
// second of clusterIPs if the policy becomes SingleStack.
func chooseFamilies(s, old *corev1.Service, cluster []corev1.IPFamily) field.ErrorList {
	if !hasClusterIP(s) || keepsPreferDualStack(s, old) {
		return nil
	}
	spec := &s.Spec
	// headless, and the user manages the endpoints
	open := spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0
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
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(i), ip,
				fmt.Sprintf("this cluster is not configured for %s", family)))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	dual := *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack
	if !open {
		if *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(cluster) < 2 {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), *spec.IPFamilyPolicy,
				"this cluster has only one IP family"))
		}
		for i, family := range spec.IPFamilies {
			if !slices.Contains(cluster, family) {
				errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), family,
					"not configured on this cluster"))
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

// keepsPreferDualStack reports whether the update leaves a PreferDualStack service unchanged. Such
// an update must not add or remove a family because the cluster has become dual-stack or
// single-stack.
func keepsPreferDualStack(s, old *corev1.Service) bool {
	prefers := func(s *corev1.Service) bool {
		return s.Spec.IPFamilyPolicy != nil &&
			*s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack
	}
	return old != nil && old.Spec.Type == s.Spec.Type && prefers(s) && prefers(old) &&
		sameClusterIPs(s, old) && slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies)
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

// fitPolicy checks the number of addresses and families against the policy. With SingleStack, it
// removes the second address and family if the client left them unchanged.
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
			errs = append(errs, field.Invalid(path, *spec.IPFamilyPolicy,
				"may not be SingleStack with two clusterIPs"))
		}
		if len(spec.IPFamilies) > 1 {
			errs = append(errs, field.Invalid(path, *spec.IPFamilyPolicy,
				"may not be SingleStack with two ipFamilies"))
		}
		return errs
	}
	if old == nil || !hasClusterIP(old) {
		return nil
	}
	if n := len(spec.ClusterIPs); n > 0 && n < len(old.Spec.ClusterIPs) {
		errs = append(errs, field.Invalid(path, *spec.IPFamilyPolicy,
			"must be SingleStack to remove the second cluster IP"))
	}
	if n := len(spec.IPFamilies); n > 0 && n < len(old.Spec.IPFamilies) {
		errs = append(errs, field.Invalid(path, *spec.IPFamilyPolicy,
			"must be SingleStack to remove the second IP family"))
	}
	return errs
}

// validateClusterIPs validates the four fields separately and against each other.
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
			errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "must be empty if clusterIP is empty"))
		}
	case len(spec.ClusterIPs) == 0:
		errs = append(errs, field.Required(ips, "must be set if clusterIP is set"))
	case spec.ClusterIPs[0] != spec.ClusterIP:
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "must start with clusterIP"))
	}

	seen := sets.New[corev1.IPFamily]()
	for i, family := range spec.IPFamilies {
		familyPath := path.Child("ipFamilies").Index(i)
		if family != corev1.IPv4Protocol && family != corev1.IPv6Protocol {
			errs = append(errs, field.NotSupported(familyPath, family,
				[]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}))
		}
		if seen.Has(family) {
			errs = append(errs, field.Duplicate(familyPath, family))
		}
		seen.Insert(family)
	}
	if p := spec.IPFamilyPolicy; p != nil {
		known := []corev1.IPFamilyPolicy{
			corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack,
			corev1.IPFamilyPolicySingleStack,
		}
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
				errs, wrong = append(errs, field.Invalid(ips, spec.ClusterIPs,
					"must be either None or addresses")), true
			}
			continue
		}
		bad := addresses.IP(ips.Index(i), ip, sets.New(oldIPs...))
		errs, wrong = append(errs, bad...), wrong || len(bad) > 0
	}
	if len(spec.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs,
			"may have at most one address of each IP family"))
	}
	if wrong || isHeadless(s) {
		return errs
	}
	return append(errs, validateFamiliesOfIPs(spec, path)...)
}

// validateFamiliesOfIPs checks valid addresses against the families.
func validateFamiliesOfIPs(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	ips := path.Child("clusterIPs")
	found := sets.New[corev1.IPFamily]()
	for i, ip := range spec.ClusterIPs {
		family := familyOf(addresses.Parse(ip))
		found.Insert(family)
		if i < len(spec.IPFamilies) && spec.IPFamilies[i] == otherFamily(family) {
			errs = append(errs, field.Invalid(ips.Index(i), ip,
				fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", spec.IPFamilies[i], i)))
		}
	}
	// Two addresses must be of different families. More than two are an error here too, although
	// the caller has already reported their number.
	if len(spec.ClusterIPs) > 1 && (len(found) < 2 || len(spec.ClusterIPs) > 2) {
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs,
			"may have at most one address of each IP family"))
	}
	return errs
}
