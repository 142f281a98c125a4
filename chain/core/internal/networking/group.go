package networking

import (
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group networking.k8s.io.
func Group() kind.Group {
	return kind.Group{
		Name:     networkingv1.GroupName,
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: networkingv1.AddToScheme}},
		Kinds: []kind.Declaration{
			IngressClasses(),
			Ingresses(),
			IPAddresses(),
			NetworkPolicies(),
			ServiceCIDRs(),
		},
	}
}
