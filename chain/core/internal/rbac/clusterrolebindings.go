package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// ClusterRoleBindings declares clusterrolebindings.
func ClusterRoleBindings(policy Policy) *kind.Kind[*rbacv1.ClusterRoleBinding] {
	return &kind.Kind[*rbacv1.ClusterRoleBinding]{
		Plural:        "clusterrolebindings",
		ClusterScoped: true,
		Name:          path.ValidatePathSegmentName,
		Default:       func(b *rbacv1.ClusterRoleBinding) { defaultBinding(b.Subjects, &b.RoleRef) },
		Validate: func(_ context.Context, b *rbacv1.ClusterRoleBinding) field.ErrorList {
			return validateBinding(b.Subjects, b.RoleRef, false)
		},
		ValidateUpdate: func(_ context.Context, b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
			return append(validateBinding(b.Subjects, b.RoleRef, false), sameRole(b.RoleRef, old.RoleRef)...)
		},
		Table: kind.Table[*rbacv1.ClusterRoleBinding]{
			Columns: bindingColumns(),
			Row: func(b *rbacv1.ClusterRoleBinding) []any {
				return bindingRow(b, b.Subjects, b.RoleRef)
			},
		},
		CreateOnUpdate: true,
		Wrap: func(s *kind.Storage) rest.Storage {
			return guard(s, policy, func(ctx context.Context, p Policy, obj, _ runtime.Object) error {
				return mayBind(ctx, p, obj.(*rbacv1.ClusterRoleBinding).RoleRef)
			})
		},
	}
}
