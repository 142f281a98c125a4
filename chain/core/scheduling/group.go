package scheduling

import (
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/kinproc/kinproc/chain/core/kind"
)

// Group is the group scheduling.k8s.io.
func Group() kind.Group {
	return kind.Group{
		Name:     schedulingv1.GroupName,
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: schedulingv1.AddToScheme}},
		Kinds:    []kind.Declaration{PriorityClasses()},
	}
}
