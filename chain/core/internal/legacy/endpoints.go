package legacy

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/addresses"
	"github.com/kinproc/kinproc/chain/kind"
)

// Endpoints declares endpoints, the deprecated predecessor of endpointslices. The API machinery
// adds the deprecation warning.
func Endpoints() *kind.Kind[*corev1.Endpoints] {
	return &kind.Kind[*corev1.Endpoints]{
		Plural:     "endpoints",
		ShortNames: []string{"ep"},
		Default: func(e *corev1.Endpoints) {
			for i := range e.Subsets {
				for j := range e.Subsets[i].Ports {
					if p := &e.Subsets[i].Ports[j]; p.Protocol == "" {
						p.Protocol = corev1.ProtocolTCP
					}
				}
			}
		},
		Validate: func(_ context.Context, e *corev1.Endpoints) field.ErrorList {
			return validateEndpoints(e, nil)
		},
		ValidateUpdate: func(_ context.Context, e, old *corev1.Endpoints) field.ErrorList {
			return validateEndpoints(e, old)
		},
		Table: kind.Table[*corev1.Endpoints]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Endpoints", Description: "Addresses and ports of the ready endpoints."},
				kind.AgeColumn(),
			},
			Row: func(e *corev1.Endpoints) []any { return []any{e.Name, formatEndpoints(e), kind.Age(e)} },
		},
		Warnings: func(_ context.Context, e, _ *corev1.Endpoints) []string {
			if e.Labels["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
				// The endpoints controller writes often, and only canonical addresses.
				return nil
			}
			var warnings []string
			eachAddress(e, func(a *corev1.EndpointAddress, path *field.Path) {
				warnings = append(warnings, validation.GetWarningsForIP(path.Child("ip"), a.IP)...)
			})
			return warnings
		},
		CreateOnUpdate: true,
		Quirks:         kind.Quirks{StoragePath: "services/endpoints", NameOnUpdate: true},
	}
}

// formatEndpoints returns the first endpoints, and how many there are besides. A subset has one for
// each of its addresses and ports, which may be billions.
func formatEndpoints(e *corev1.Endpoints) string {
	const shown = 3
	var first []string
	all := 0
	for _, s := range e.Subsets {
		n := len(s.Addresses) * max(1, len(s.Ports))
		for i := range min(n, shown-len(first)) {
			address := s.Addresses[i%len(s.Addresses)].IP
			if len(s.Ports) > 0 {
				port := s.Ports[i/len(s.Addresses)].Port
				address = net.JoinHostPort(address, strconv.Itoa(int(port)))
			}
			first = append(first, address)
		}
		all += n
	}
	switch {
	case len(e.Subsets) == 0:
		return "<none>"
	case all > shown:
		return fmt.Sprintf("%s + %d more...", strings.Join(first, ","), all-shown)
	}
	return strings.Join(first, ",")
}

func eachAddress(e *corev1.Endpoints, do func(*corev1.EndpointAddress, *field.Path)) {
	for i := range e.Subsets {
		s, path := &e.Subsets[i], field.NewPath("subsets").Index(i)
		for j := range s.Addresses {
			do(&s.Addresses[j], path.Child("addresses").Index(j))
		}
		for j := range s.NotReadyAddresses {
			do(&s.NotReadyAddresses[j], path.Child("notReadyAddresses").Index(j))
		}
	}
}

// validateEndpoints validates e; old is nil for a new object. An update that leaves the subsets of
// old unchanged is valid even if the subsets are not, because older versions of Kubernetes
// validated them less strictly.
func validateEndpoints(e, old *corev1.Endpoints) field.ErrorList {
	errs := validateSubsets(e)
	if len(errs) > 0 && old != nil && equality.Semantic.DeepEqual(e.Subsets, old.Subsets) {
		return nil
	}
	return errs
}

func validateSubsets(e *corev1.Endpoints) field.ErrorList {
	var errs field.ErrorList
	for i, s := range e.Subsets {
		path := field.NewPath("subsets").Index(i)
		if len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(path, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j, p := range s.Ports {
			errs = append(errs, validateEndpointPort(&p, len(s.Ports) > 1, path.Child("ports").Index(j))...)
		}
	}
	eachAddress(e, func(a *corev1.EndpointAddress, path *field.Path) {
		errs = append(errs, addresses.IP(path.Child("ip"), a.IP, nil)...)
		if a.Hostname != "" {
			errs = append(errs, rules.Invalid(path.Child("hostname"), a.Hostname,
				validation.IsDNS1123Label(a.Hostname))...)
		}
		if a.NodeName != nil {
			errs = append(errs, rules.Invalid(path.Child("nodeName"), *a.NodeName,
				validation.IsDNS1123Subdomain(*a.NodeName))...)
		}
		if addresses.Parse(a.IP).IsValid() {
			errs = append(errs, addresses.RoutableIP(path.Child("ip"), a.IP)...)
		} else { // kube-apiserver says it in other words too
			errs = append(errs, field.Invalid(path.Child("ip"), a.IP, "must be a valid IP address"))
		}
	})
	return errs
}

func validateEndpointPort(
	p *corev1.EndpointPort, needsName bool, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if p.Name != "" {
		errs = append(errs, rules.Invalid(path.Child("name"), p.Name,
			validation.IsDNS1123Label(p.Name))...)
	} else if needsName {
		errs = append(errs, field.Required(path.Child("name"),
			"must be set if the subset has more than one port"))
	}
	errs = append(errs, rules.Invalid(path.Child("port"), p.Port,
		validation.IsValidPortNum(int(p.Port)))...)
	if p.Protocol == "" {
		errs = append(errs, field.Required(path.Child("protocol"), ""))
	} else {
		errs = append(errs, addresses.Protocol(path.Child("protocol"), p.Protocol)...)
	}
	if p.AppProtocol != nil {
		errs = append(errs, rules.Invalid(path.Child("appProtocol"), *p.AppProtocol,
			validation.IsQualifiedName(*p.AppProtocol))...)
	}
	return errs
}
