package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group coordination.k8s.io.
func Group() kind.Group {
	return kind.Group{
		Name: coordinationv1.GroupName,
		Versions: []kind.GroupVersion{
			{Version: "v1", AddToScheme: coordinationv1.AddToScheme},
			{Version: "v1beta1", AddToScheme: coordinationv1beta1.AddToScheme, OffByDefault: true},
			{Version: "v1alpha2", AddToScheme: coordinationv1alpha2.AddToScheme, OffByDefault: true},
		},
		Kinds: []kind.Declaration{Leases(), LeaseCandidates()},
	}
}
