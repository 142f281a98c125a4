package node

import (
	nodev1 "k8s.io/api/node/v1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group node.k8s.io.
func Group() kind.Group {
	return kind.Group{
		Name:     nodev1.SchemeGroupVersion.Group,
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: nodev1.AddToScheme}},
		Kinds:    []kind.Declaration{RuntimeClasses()},
	}
}
