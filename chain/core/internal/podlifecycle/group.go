package podlifecycle

import (
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group lifecycle.k8s.io.
func Group() kind.Group {
	return kind.Group{
		Name: lifecyclev1alpha1.GroupName,
		Versions: []kind.GroupVersion{
			{Version: "v1alpha1", AddToScheme: lifecyclev1alpha1.AddToScheme, OffByDefault: true},
		},
		Kinds: []kind.Declaration{EvictionRequests(), Evictions()},
	}
}
