package legacy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
	"github.com/kinproc/kinproc/chain/kind"
)

// quotaScopes maps the scopes of quotas to the standard resources that they support. Every scope
// supports non-standard resources.
var quotaScopes = map[corev1.ResourceQuotaScope]sets.Set[corev1.ResourceName]{
	corev1.ResourceQuotaScopeTerminating:               podResources,
	corev1.ResourceQuotaScopeNotTerminating:            podResources,
	corev1.ResourceQuotaScopeBestEffort:                sets.New(corev1.ResourcePods),
	corev1.ResourceQuotaScopeNotBestEffort:             podResources,
	corev1.ResourceQuotaScopePriorityClass:             podResources,
	corev1.ResourceQuotaScopeCrossNamespacePodAffinity: podResources,
	corev1.ResourceQuotaScopeVolumeAttributesClass: sets.New(corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceRequestsStorage),
}

var podResources = sets.New(corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceLimitsCPU,
	corev1.ResourceLimitsMemory)

// ResourceQuotas declares resourcequotas.
func ResourceQuotas() *kind.Kind[*corev1.ResourceQuota] {
	return &kind.Kind[*corev1.ResourceQuota]{
		Plural:     "resourcequotas",
		ShortNames: []string{"quota"},
		Default: func(q *corev1.ResourceQuota) {
			quantities.RoundUp(q.Spec.Hard, q.Status.Hard, q.Status.Used)
		},
		Validate: func(_ context.Context, q *corev1.ResourceQuota) field.ErrorList {
			return append(validateQuotaSpec(&q.Spec), validateQuotaStatus(&q.Status)...)
		},
		ValidateUpdate: func(_ context.Context, q, old *corev1.ResourceQuota) field.ErrorList {
			errs := append(validateQuotaSpec(&q.Spec), validateQuotaStatus(&q.Status)...)
			if !sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
				errs = append(errs, field.Invalid(field.NewPath("spec", "scopes"),
					q.Spec.Scopes, "field is immutable"))
			}
			return errs
		},
		Table: kind.Table[*corev1.ResourceQuota]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Request", Description: "Used and hard amounts of resources, except for limits."},
				{Name: "Limit", Description: "Used and hard amounts of limits."},
				kind.AgeColumn(),
			},
			Row: quotaRow,
		},
		Status: &kind.Status[*corev1.ResourceQuota]{
			Validate: func(_ context.Context, q, _ *corev1.ResourceQuota) field.ErrorList {
				return append(requireVersion(q), validateQuotaStatus(&q.Status)...)
			},
		},
		Quirks: kind.Quirks{ReturnDeleted: true},
	}
}

func quotaRow(q *corev1.ResourceQuota) []any {
	var requests, limits []string
	for _, name := range sets.List(sets.KeySet(q.Status.Hard)) {
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		cell := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(string(name), "limits") {
			limits = append(limits, cell)
		} else {
			requests = append(requests, cell)
		}
	}
	return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), kind.Age(q)}
}

func validateQuotaStatus(status *corev1.ResourceQuotaStatus) field.ErrorList {
	errs := validateQuotaList(status.Hard, field.NewPath("status", "hard"))
	return append(errs, validateQuotaList(status.Used, field.NewPath("status", "used"))...)
}

func validateQuotaList(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, q := range list {
		key := at.Key(string(name))
		errs = append(errs, quantities.ValidateResourceName(name, key)...)
		if !strings.Contains(string(name), "/") && !quantities.IsStandardQuotaResource(name) {
			errs = append(errs, field.Invalid(key, name, "must be a standard resource for quota"))
		}
		errs = append(errs, quantities.ValidateResourceQuantity(name, q, key)...)
	}
	return errs
}

func validateQuotaSpec(spec *corev1.ResourceQuotaSpec) field.ErrorList {
	errs := validateQuotaList(spec.Hard, field.NewPath("spec", "hard"))

	limited := standardResources(spec.Hard)
	at := field.NewPath("spec", "scopes")
	for _, scope := range spec.Scopes {
		errs = append(errs, validateQuotaScope(scope, limited, at, spec.Scopes, at, spec.Scopes)...)
	}
	errs = append(errs, validateScopePairs(spec.Scopes, at, spec.Scopes)...)

	if spec.ScopeSelector == nil {
		return errs
	}
	at = field.NewPath("spec", "scopeSelector", "matchExpressions")
	var scopes []corev1.ResourceQuotaScope
	for _, r := range spec.ScopeSelector.MatchExpressions {
		scopes = append(scopes, r.ScopeName)
		errs = append(errs, validateQuotaScope(r.ScopeName, limited, at.Child("scopeName"), r.ScopeName,
			at, spec.ScopeSelector)...)
		errs = append(errs, validateScopeRequirement(r, at)...)
	}
	return append(errs, validateScopePairs(scopes, at, spec.ScopeSelector)...)
}

// standardResources returns the standard ones of the resources in hard, of which there may be
// thousands of others.
func standardResources(hard corev1.ResourceList) []corev1.ResourceName {
	var names []corev1.ResourceName
	for name := range hard {
		if quantities.IsStandardQuotaResource(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// validateQuotaScope checks that the scope is known and that it supports the limited resources.
// Unknown scopes are reported with nameAt and name, unsupported resources with at and value.
func validateQuotaScope(
	scope corev1.ResourceQuotaScope, limited []corev1.ResourceName, nameAt *field.Path, name any,
	at *field.Path, value any,
) field.ErrorList {
	countable, ok := quotaScopes[scope]
	if !ok {
		return field.ErrorList{
			field.Invalid(nameAt, name, "unsupported scope"),
		}
	}
	var errs field.ErrorList
	for _, name := range limited {
		if !countable.Has(name) {
			// The message is the same for all, so that the error has it once.
			errs = append(errs, field.Invalid(at, value, "unsupported scope applied to resource"))
		}
	}
	return errs
}

func validateScopePairs(
	scopes []corev1.ResourceQuotaScope, at *field.Path, value any,
) field.ErrorList {
	var errs field.ErrorList
	for _, pair := range [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if slices.Contains(scopes, pair[0]) && slices.Contains(scopes, pair[1]) {
			errs = append(errs, field.Invalid(at, value, "conflicting scopes"))
		}
	}
	return errs
}

func validateScopeRequirement(
	r corev1.ScopedResourceSelectorRequirement, at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort,
		corev1.ResourceQuotaScopeTerminating,
		corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		if r.Operator != corev1.ScopeSelectorOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), r.Operator,
				fmt.Sprintf("must be Exists for scope %s", r.ScopeName)))
		}
	}
	switch r.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(at.Child("values"),
				"must not be empty if operator is In or NotIn"))
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Invalid(at.Child("values"), r.Values,
				"must be empty if operator is Exists or DoesNotExist"))
		}
	default:
		errs = append(errs, field.Invalid(at.Child("operator"), r.Operator,
			"is not a valid operator of a scope selector"))
	}
	return errs
}
