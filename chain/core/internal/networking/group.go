package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group networking.k8s.io.
func Group() kind.Group {
	return kind.Group{
		Name: networkingv1.GroupName,
		Versions: []kind.GroupVersion{
			{Version: "v1", AddToScheme: networkingv1.AddToScheme},
			{Version: "v1beta1", AddToScheme: networkingv1beta1.AddToScheme, OffByDefault: true},
		},
		Kinds: []kind.Declaration{
			IngressClasses(),
			Ingresses(),
			IPAddresses(),
			NetworkPolicies(),
			ServiceCIDRs(),
		},
	}
}
