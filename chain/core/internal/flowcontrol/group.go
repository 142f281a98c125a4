package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group flowcontrol.apiserver.k8s.io.
func Group() kind.Group {
	return kind.Group{
		Name:     flowcontrolv1.GroupName,
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: flowcontrolv1.AddToScheme}},
		Kinds: []kind.Declaration{
			FlowSchemas(),
			PriorityLevelConfigurations(),
		},
	}
}
