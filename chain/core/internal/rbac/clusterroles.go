package rbac

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// ClusterRoles declares clusterroles. A controller maintains the rules of aggregated roles.
func ClusterRoles(policy Policy) *kind.Kind[*rbacv1.ClusterRole] {
	return &kind.Kind[*rbacv1.ClusterRole]{
		Plural:        "clusterroles",
		ClusterScoped: true,
		Name:          path.ValidatePathSegmentName,
		Validate: func(_ context.Context, r *rbacv1.ClusterRole) field.ErrorList {
			return validateClusterRole(r, metav1validation.LabelSelectorValidationOptions{})
		},
		ValidateUpdate: func(_ context.Context, r, old *rbacv1.ClusterRole) field.ErrorList {
			return validateClusterRole(r, metav1validation.LabelSelectorValidationOptions{
				AllowInvalidLabelValueInSelector: hasInvalidSelector(old),
			})
		},
		CreateOnUpdate: true,
		Wrap: func(s *kind.Storage) rest.Storage {
			return guard(s, policy, mayWriteClusterRole)
		},
	}
}

func hasInvalidSelector(r *rbacv1.ClusterRole) bool {
	return r.AggregationRule != nil &&
		slices.ContainsFunc(r.AggregationRule.ClusterRoleSelectors, func(s metav1.LabelSelector) bool {
			return len(metav1validation.ValidateLabelSelector(&s,
				metav1validation.LabelSelectorValidationOptions{}, nil)) > 0
		})
}

func validateClusterRole(
	r *rbacv1.ClusterRole, selectors metav1validation.LabelSelectorValidationOptions,
) field.ErrorList {
	errs := validateRules(r.Rules, false)
	if r.AggregationRule == nil {
		return errs
	}
	at := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		errs = append(errs, field.Required(at,
			"at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	for i, selector := range r.AggregationRule.ClusterRoleSelectors {
		errs = append(errs, metav1validation.ValidateLabelSelector(&selector, selectors, at.Index(i))...)
		if _, err := metav1.LabelSelectorAsSelector(&selector); err != nil {
			errs = append(errs, field.Invalid(at.Index(i), selector, "must be a valid label selector"))
		}
	}
	return errs
}

// mayWriteClusterRole requires all permissions if the role has or had an aggregation rule. An
// aggregation rule can collect any permission, and removing the rule keeps the collected
// permissions even if the aggregated roles shrink later.
func mayWriteClusterRole(ctx context.Context, p Policy, obj, old runtime.Object) error {
	role := obj.(*rbacv1.ClusterRole)
	if err := mayGrantRole(ctx, p, role.Rules); err != nil {
		return err
	}
	before, _ := old.(*rbacv1.ClusterRole)
	if role.AggregationRule == nil && (before == nil || before.AggregationRule == nil) {
		return nil
	}
	return mayGrantRole(ctx, p, []rbacv1.PolicyRule{
		{
			Verbs:     []string{rbacv1.VerbAll},
			APIGroups: []string{rbacv1.APIGroupAll},
			Resources: []string{rbacv1.ResourceAll},
		},
		{Verbs: []string{rbacv1.VerbAll}, NonResourceURLs: []string{rbacv1.NonResourceAll}},
	})
}
