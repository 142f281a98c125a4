package discovery

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/addresses"
	"github.com/kinproc/kinproc/chain/kind"
)

// Limits of a slice, which keep it within the size of an etcd request. The limits of addresses and
// hints are per endpoint.
const (
	maxEndpoints      = 1000
	maxAddresses      = 100
	maxPorts          = 20000
	maxTopologyLabels = 16
	maxHints          = 8
)

// EndpointSlices declares endpointslices.
func EndpointSlices() *kind.Kind[*discoveryv1.EndpointSlice] {
	return &kind.Kind[*discoveryv1.EndpointSlice]{
		Plural:  "endpointslices",
		Default: defaultEndpointSlice,
		PrepareCreate: func(_ context.Context, s *discoveryv1.EndpointSlice) {
			s.Generation = 1
			dropTopology(s, nil)
		},
		PrepareUpdate: func(_ context.Context, s, old *discoveryv1.EndpointSlice) {
			// The generation counts what the client sent, including fields that are dropped below.
			if !sameEndpoints(s, old) {
				s.Generation = old.Generation + 1
			}
			dropTopology(s, old)
		},
		Validate: func(_ context.Context, s *discoveryv1.EndpointSlice) field.ErrorList {
			return validateEndpointSlice(s, nil)
		},
		ValidateUpdate: validateEndpointSliceUpdate,
		Table: kind.Table[*discoveryv1.EndpointSlice]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "AddressType", Description: "What the addresses are: IPv4, IPv6 or FQDN."},
				{Name: "Ports", Description: "Ports at which all endpoints listen."},
				{Name: "Endpoints", Description: "Addresses of the endpoints."},
				kind.AgeColumn(),
			},
			Row: func(s *discoveryv1.EndpointSlice) []any {
				var ports, addresses []string
				for _, p := range s.Ports {
					port := "*"
					if p.Port != nil {
						port = strconv.Itoa(int(*p.Port))
					} else if p.Name != nil {
						port = *p.Name
					}
					ports = append(ports, port)
				}
				for _, e := range s.Endpoints {
					addresses = append(addresses, e.Addresses...)
				}
				return []any{s.Name, string(s.AddressType), firstFew(ports), firstFew(addresses), kind.Age(s)}
			},
		},
		Warnings: warnEndpointSlice,
		Quirks:   kind.Quirks{NameOnUpdate: true},
	}
}

func firstFew(values []string) string {
	const shown = 3
	if len(values) > shown {
		return fmt.Sprintf("%s + %d more...", strings.Join(values[:shown], ","), len(values)-shown)
	}
	return cmp.Or(strings.Join(values, ","), "<unset>")
}

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.Name == nil {
			p.Name = new("")
		}
		if p.Protocol == nil {
			p.Protocol = new(corev1.ProtocolTCP)
		}
	}
}

// dropTopology clears the field deprecatedTopology, which only v1beta1 could write. If an old
// endpoint has a node name there and the endpoints are rewritten without a nodeName, the name moves
// to nodeName.
func dropTopology(s, old *discoveryv1.EndpointSlice) {
	known := sets.New[string]()
	if old != nil {
		if equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
			return
		}
		for _, e := range old.Endpoints {
			known.Insert(e.DeprecatedTopology[corev1.LabelHostname])
		}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		node := e.DeprecatedTopology[corev1.LabelHostname]
		if node != "" && e.NodeName == nil && known.Has(node) &&
			len(validation.IsDNS1123Subdomain(node)) == 0 {
			e.NodeName = &node
		}
		e.DeprecatedTopology = nil
	}
}

// sameEndpoints reports whether the generation stays the same. Changes of the labels count too
// because the labels tie the slice to its service.
func sameEndpoints(s, old *discoveryv1.EndpointSlice) bool {
	a, b := *s, *old
	// a patch may set it, other requests may not
	a.TypeMeta, b.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
	a.ObjectMeta = metav1.ObjectMeta{Labels: s.Labels}
	b.ObjectMeta = metav1.ObjectMeta{Labels: old.Labels}
	return equality.Semantic.DeepEqual(&a, &b)
}

func warnEndpointSlice(_ context.Context, s, old *discoveryv1.EndpointSlice) []string {
	var warnings []string
	if old == nil && s.AddressType == discoveryv1.AddressTypeFQDN {
		warnings = append(warnings, "addressType: FQDN is deprecated")
	}
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return warnings
	}
	switch s.Labels[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		// These controllers write only canonical addresses, and they write often.
		return warnings
	}
	for i, e := range s.Endpoints {
		for j, address := range e.Addresses {
			path := field.NewPath("endpoints").Index(i).Child("addresses").Index(j)
			warnings = append(warnings, validation.GetWarningsForIP(path, address)...)
		}
	}
	return warnings
}

func validateEndpointSliceUpdate(
	_ context.Context, s, old *discoveryv1.EndpointSlice,
) field.ErrorList {
	errs := validateEndpointSlice(s, old)
	return append(errs, apivalidation.ValidateImmutableField(s.AddressType, old.AddressType,
		field.NewPath("addressType"))...)
}

// validateEndpointSlice accepts endpoints that are unchanged from old, which may predate the
// current rules.
func validateEndpointSlice(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	var errs field.ErrorList
	switch s.AddressType {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN:
	case "":
		errs = append(errs, field.Required(field.NewPath("addressType"), ""))
	default:
		errs = append(errs, field.NotSupported(field.NewPath("addressType"), s.AddressType,
			[]discoveryv1.AddressType{
				discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6,
			}))
	}
	bad := validateEndpoints(s, field.NewPath("endpoints"))
	if len(bad) > 0 && (old == nil || !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints)) {
		errs = append(errs, bad...)
	}
	return append(errs, validatePorts(s.Ports, field.NewPath("ports"))...)
}

func validateEndpoints(s *discoveryv1.EndpointSlice, path *field.Path) field.ErrorList {
	if len(s.Endpoints) > maxEndpoints {
		return field.ErrorList{field.TooMany(path, len(s.Endpoints), maxEndpoints)}
	}
	var errs field.ErrorList
	for i := range s.Endpoints {
		errs = append(errs, validateEndpoint(s, &s.Endpoints[i], path.Index(i))...)
	}
	return errs
}

func validateEndpoint(
	s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	addresses := path.Child("addresses")
	if len(e.Addresses) == 0 {
		errs = append(errs, field.Required(addresses, "must contain at least 1 address"))
	} else if len(e.Addresses) > maxAddresses {
		errs = append(errs, field.TooMany(addresses, len(e.Addresses), maxAddresses))
	}
	for i, address := range e.Addresses {
		switch s.AddressType {
		case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
			errs = append(errs, validateAddress(s, address, addresses, i)...)
		case discoveryv1.AddressTypeFQDN:
			errs = append(errs, validation.IsFullyQualifiedDomainName(addresses.Index(i), address)...)
		}
	}
	if e.NodeName != nil {
		errs = append(errs, invalid(path.Child("nodeName"), *e.NodeName,
			validation.IsDNS1123Subdomain)...)
	}
	topology := path.Child("deprecatedTopology")
	if len(e.DeprecatedTopology) > maxTopologyLabels {
		errs = append(errs, field.TooMany(topology, len(e.DeprecatedTopology), maxTopologyLabels))
	}
	errs = append(errs, metavalidation.ValidateLabels(e.DeprecatedTopology, topology)...)
	if e.Hostname != nil {
		errs = append(errs, invalid(path.Child("hostname"), *e.Hostname, validation.IsDNS1123Label)...)
	}
	if e.Hints != nil {
		errs = append(errs, validateHints(e.Hints, path.Child("hints"))...)
	}
	return errs
}

// validateAddress checks the i-th address. Like kube-apiserver, it reports an address of the wrong
// family for the list as a whole.
//
// Unlike kube-apiserver, it allows loopback addresses in the slices of a Service, because Services
// here lead to servers on the developer's own machine.
func validateAddress(
	s *discoveryv1.EndpointSlice, address string, path *field.Path, i int,
) field.ErrorList {
	errs := addresses.IP(path.Index(i), address, nil)
	if len(errs) > 0 {
		return errs
	}
	ip := addresses.Parse(address)
	if ip.Is4() != (s.AddressType == discoveryv1.AddressTypeIPv4) {
		errs = append(errs, field.Invalid(path, address,
			fmt.Sprintf("must be an %s address", s.AddressType)))
	}
	if ip.IsLoopback() && s.Labels[discoveryv1.LabelServiceName] != "" {
		return errs
	}
	return append(errs, addresses.RoutableIP(path.Index(i), address)...)
}

func validateHints(h *discoveryv1.EndpointHints, path *field.Path) field.ErrorList {
	var zones, nodes []string
	for _, z := range h.ForZones {
		zones = append(zones, z.Name)
	}
	for _, n := range h.ForNodes {
		nodes = append(nodes, n.Name)
	}
	errs := validateHintNames(zones, path.Child("forZones"), validation.IsValidLabelValue)
	if len(zones) > maxHints {
		return errs
	}
	return append(errs, validateHintNames(nodes, path.Child("forNodes"),
		validation.IsDNS1123Subdomain)...)
}

func validateHintNames(
	names []string, path *field.Path, check func(string) []string,
) field.ErrorList {
	if len(names) > maxHints {
		return field.ErrorList{field.TooMany(path, len(names), maxHints)}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, name := range names {
		namePath := path.Index(i).Child("name")
		if seen.Has(name) {
			errs = append(errs, field.Duplicate(namePath, name))
		}
		seen.Insert(name)
		errs = append(errs, invalid(namePath, name, check)...)
	}
	return errs
}

func validatePorts(ports []discoveryv1.EndpointPort, path *field.Path) field.ErrorList {
	if len(ports) > maxPorts {
		return field.ErrorList{field.TooMany(path, len(ports), maxPorts)}
	}
	var errs field.ErrorList
	names := sets.New[string]()
	for i, p := range ports {
		path := path.Index(i)
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		if name != "" {
			errs = append(errs, invalid(path.Child("name"), name, validation.IsDNS1123Label)...)
		}
		if names.Has(name) {
			errs = append(errs, field.Duplicate(path.Child("name"), name))
		}
		names.Insert(name)
		if p.Protocol == nil {
			errs = append(errs, field.Required(path.Child("protocol"), ""))
		} else {
			errs = append(errs, addresses.Protocol(path.Child("protocol"), *p.Protocol)...)
		}
		if p.AppProtocol != nil {
			errs = append(errs, invalid(path.Child("appProtocol"), *p.AppProtocol,
				validation.IsQualifiedName)...)
		}
	}
	return errs
}

func invalid(path *field.Path, value string, check func(string) []string) field.ErrorList {
	return rules.Invalid(path, value, check(value))
}
