package apps

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group apps.
func Group() kind.Group {
	return kind.Group{
		Name:     appsv1.GroupName,
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: appsv1.AddToScheme}},
		Kinds: []kind.Declaration{
			ControllerRevisions(),
			DaemonSets(),
			Deployments(),
			ReplicaSets(),
			StatefulSets(),
		},
	}
}
