package policy

import (
	policyv1 "k8s.io/api/policy/v1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group policy.
func Group() kind.Group {
	return kind.Group{
		Name:     policyv1.GroupName,
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: policyv1.AddToScheme}},
		Kinds:    []kind.Declaration{PodDisruptionBudgets()},
	}
}
