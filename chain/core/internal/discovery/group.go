package discovery

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group discovery.k8s.io.
func Group() kind.Group {
	return kind.Group{
		Name:     discoveryv1.GroupName,
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: discoveryv1.AddToScheme}},
		Kinds:    []kind.Declaration{EndpointSlices()},
	}
}
