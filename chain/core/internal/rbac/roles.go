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

// Roles declares roles.
func Roles(policy Policy) *kind.Kind[*rbacv1.Role] {
	return &kind.Kind[*rbacv1.Role]{
		Plural: "roles",
		Name:   path.ValidatePathSegmentName,
		Validate: func(_ context.Context, r *rbacv1.Role) field.ErrorList {
			return validateRules(r.Rules, true)
		},
		CreateOnUpdate: true,
		Wrap: func(s *kind.Storage) rest.Storage {
			return guard(s, policy, func(ctx context.Context, p Policy, obj, _ runtime.Object) error {
				return mayGrantRole(ctx, p, obj.(*rbacv1.Role).Rules)
			})
		},
	}
}

// validateRules checks the rules of a role (namespaced) or a cluster role.
func validateRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i, rule := range rules {
		at := field.NewPath("rules").Index(i)
		if len(rule.Verbs) == 0 {
			errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
		}
		if len(rule.NonResourceURLs) > 0 {
			if namespaced {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), rule.NonResourceURLs,
					"namespaced rules cannot apply to non-resource URLs"))
			}
			if len(rule.APIGroups) > 0 || len(rule.Resources) > 0 || len(rule.ResourceNames) > 0 {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), rule.NonResourceURLs,
					"rules cannot apply to both regular resources and non-resource URLs"))
			}
			continue
		}
		if len(rule.APIGroups) == 0 {
			errs = append(errs, field.Required(at.Child("apiGroups"),
				"at least one API group is required in a rule for resources"))
		}
		if len(rule.Resources) == 0 {
			errs = append(errs, field.Required(at.Child("resources"),
				"at least one resource is required in a rule for resources"))
		}
	}
	return errs
}
