package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group rbac.authorization.k8s.io. With a nil policy, users can grant
// permissions that they do not hold.
func Group(policy Policy) kind.Group {
	return kind.Group{
		Name:     rbacv1.GroupName,
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: rbacv1.AddToScheme}},
		Kinds: []kind.Declaration{
			Roles(policy),
			RoleBindings(policy),
			ClusterRoles(policy),
			ClusterRoleBindings(policy),
		},
	}
}
