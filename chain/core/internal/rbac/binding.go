package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/kind"
)

const (
	roleKind        = "Role"
	clusterRoleKind = "ClusterRole"
)

// defaultBinding fills in API groups. Users, groups and roles belong to the RBAC group, service
// accounts to the core group.
func defaultBinding(subjects []rbacv1.Subject, ref *rbacv1.RoleRef) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		s := &subjects[i]
		if s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

func validateBinding(
	subjects []rbacv1.Subject, ref rbacv1.RoleRef, namespaced bool,
) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("roleRef")
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), ref.APIGroup,
			[]string{rbacv1.GroupName}))
	}
	kinds := []string{clusterRoleKind}
	if namespaced {
		kinds = []string{roleKind, clusterRoleKind}
	}
	if !slices.Contains(kinds, ref.Kind) {
		errs = append(errs, field.NotSupported(at.Child("kind"), ref.Kind, kinds))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "must name the role to bind"))
	}
	errs = append(errs, rules.Invalid(at.Child("name"), ref.Name,
		path.ValidatePathSegmentName(ref.Name, false))...)
	for i, s := range subjects {
		errs = append(errs, validateSubject(s, namespaced, field.NewPath("subjects").Index(i))...)
	}
	return errs
}

func validateSubject(s rbacv1.Subject, namespaced bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "must name the subject"))
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			errs = append(errs, rules.Invalid(at.Child("name"), s.Name,
				apivalidation.ValidateServiceAccountName(s.Name, false))...)
		}
		if s.APIGroup != "" {
			errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{""}))
		}
		if !namespaced && s.Namespace == "" {
			errs = append(errs, field.Required(at.Child("namespace"),
				"must name the service account's namespace"))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		if s.APIGroup != rbacv1.GroupName {
			errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup,
				[]string{rbacv1.GroupName}))
		}
	default:
		kinds := []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}
		errs = append(errs, field.NotSupported(at.Child("kind"), s.Kind, kinds))
	}
	return errs
}

// sameRole checks that a binding keeps its role. Otherwise a user who may change the subjects could
// also give them another role.
func sameRole(ref, old rbacv1.RoleRef) field.ErrorList {
	if ref == old {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), ref,
		"field is immutable")}
}

func bindingColumns() []kind.Column {
	return []kind.Column{
		kind.NameColumn(),
		{Name: "Role", Description: "Kind and name of the role that the binding grants."},
		kind.AgeColumn(),
		{Name: "Users", Priority: 1, Description: "Users to whom the role is granted."},
		{Name: "Groups", Priority: 1, Description: "Groups to whose members the role is granted."},
		{
			Name:        "ServiceAccounts",
			Priority:    1,
			Description: "Service accounts to which the role is granted.",
		},
	}
}

func bindingRow(obj kind.Object, subjects []rbacv1.Subject, ref rbacv1.RoleRef) []any {
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{
		obj.GetName(), ref.Kind + "/" + ref.Name, kind.Age(obj),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", "),
	}
}
