package admissionregistration

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
)

var (
	scopes = sets.New(admissionv1.AllScopes, admissionv1.ClusterScope,
		admissionv1.NamespacedScope)
	failurePolicies = sets.New(admissionv1.Fail, admissionv1.Ignore)
	matchPolicies   = sets.New(admissionv1.Equivalent, admissionv1.Exact)
	reinvocations   = sets.New(admissionv1.NeverReinvocationPolicy,
		admissionv1.IfNeededReinvocationPolicy)
	allOperations = sets.New(admissionv1.OperationAll, admissionv1.Create, admissionv1.Update,
		admissionv1.Delete, admissionv1.Connect)
	mutableOperations = sets.New(admissionv1.OperationAll, admissionv1.Create, admissionv1.Update,
		admissionv1.Connect)
)

func setDefault[V any](p **V, value V) {
	if *p == nil {
		*p = &value
	}
}

func defaultRule(r *admissionv1.Rule) { setDefault(&r.Scope, admissionv1.AllScopes) }

func defaultMatchResources(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	setDefault(&m.MatchPolicy, admissionv1.Equivalent)
	setDefault(&m.NamespaceSelector, metav1.LabelSelector{})
	setDefault(&m.ObjectSelector, metav1.LabelSelector{})
	for i := range m.ResourceRules {
		defaultRule(&m.ResourceRules[i].Rule)
	}
	for i := range m.ExcludeResourceRules {
		defaultRule(&m.ExcludeResourceRules[i].Rule)
	}
}

// matchConstraints validates what a policy matches. Unlike a binding, a policy must match some
// resources, because they determine the types in its expressions.
func matchConstraints(m *admissionv1.MatchResources, at *field.Path) field.ErrorList {
	if m == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := matchResources(m, at)
	if len(m.ResourceRules) == 0 {
		errs = append(errs, field.Required(at.Child("resourceRules"), "must contain at least one rule"))
	}
	return errs
}

func matchResources(m *admissionv1.MatchResources, at *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	if m.MatchPolicy == nil {
		errs = append(errs, field.Required(at.Child("matchPolicy"), ""))
	} else {
		errs = append(errs, oneOf(m.MatchPolicy, matchPolicies, at.Child("matchPolicy"))...)
	}
	for name, selector := range map[string]*metav1.LabelSelector{
		"namespaceSelector": m.NamespaceSelector,
		"objectSelector":    m.ObjectSelector,
	} {
		if selector == nil {
			errs = append(errs, field.Required(at.Child(name), ""))
			continue
		}
		errs = append(errs, metavalidation.ValidateLabelSelector(selector,
			metavalidation.LabelSelectorValidationOptions{}, at.Child(name))...)
	}
	for i := range m.ResourceRules {
		errs = append(errs, namedRule(&m.ResourceRules[i], at.Child("resourceRules").Index(i))...)
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, namedRule(&m.ExcludeResourceRules[i],
			at.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

// mutable requires rules to match only requests that can be mutated. The field path of its errors
// has no index, as in kube-apiserver.
func mutable(m *admissionv1.MatchResources, at *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	for _, r := range m.ResourceRules {
		for _, operation := range r.Operations {
			errs = append(errs, oneOf(&operation, mutableOperations,
				at.Child("resourceRules", "operations"))...)
		}
	}
	return errs
}

func namedRule(r *admissionv1.NamedRuleWithOperations, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, name := range r.ResourceNames {
		errs = append(errs, rules.Invalid(at.Child("resourceNames").Index(i), name,
			path.ValidatePathSegmentName(name, false))...)
		if names.Has(name) {
			errs = append(errs, field.Duplicate(at.Child("resourceNames").Index(i), name))
		}
		names.Insert(name)
	}
	return append(errs, ruleWithOperations(&r.RuleWithOperations, at)...)
}

func ruleWithOperations(r *admissionv1.RuleWithOperations, at *field.Path) field.ErrorList {
	errs := wildcardAlone(r.Operations, admissionv1.OperationAll, at.Child("operations"))
	for i, operation := range r.Operations {
		errs = append(errs, oneOf(&operation, allOperations, at.Child("operations").Index(i))...)
	}
	errs = append(errs, wildcardAlone(r.APIGroups, "*", at.Child("apiGroups"))...)
	errs = append(errs, wildcardAlone(r.APIVersions, "*", at.Child("apiVersions"))...)
	for i, version := range r.APIVersions {
		if version == "" {
			errs = append(errs, field.Required(at.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, resources(r.Resources, at.Child("resources"))...)
	return append(errs, oneOf(r.Scope, scopes, at.Child("scope"))...)
}

// resources validates a list such as ["pods", "pods/*", "*/scale"] and rejects entries that are
// covered by others.
func resources(list []string, at *field.Path) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	var everything, allWhole, lastIsWhole bool
	// resources of "pods/*" and subresources of "*/scale" seen so far
	allOf, ofAll := sets.New[string](), sets.New[string]()
	for i, entry := range list {
		resource, subresource, isSub := strings.Cut(entry, "/")
		switch {
		case entry == "":
			errs = append(errs, field.Required(at.Index(i), ""))
			continue
		case entry == "*":
			allWhole = true
		case entry == "*/*":
			everything = true
		}
		if !isSub {
			// kube-apiserver only considers the last whole resource: it rejects ["*", "pods"] but
			// accepts ["pods", "*"].
			lastIsWhole = entry != "*"
			continue
		}
		if allOf.Has(resource) {
			errs = append(errs, field.Invalid(at.Index(i), entry, "is already covered by "+resource+"/*"))
		}
		if ofAll.Has(subresource) {
			errs = append(errs, field.Invalid(at.Index(i), entry, "is already covered by */"+subresource))
		}
		if subresource == "*" {
			allOf.Insert(resource)
		}
		if resource == "*" {
			ofAll.Insert(subresource)
		}
	}
	if everything && len(list) > 1 {
		errs = append(errs, field.Invalid(at, list, "must have no other entry if */* is present"))
	}
	if allWhole && lastIsWhole {
		errs = append(errs, field.Invalid(at, list,
			"if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

// wildcardAlone requires a non-empty list in which the wildcard, if present, is the only element.
func wildcardAlone[S ~string](list []S, wildcard S, at *field.Path) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	if len(list) > 1 && slices.Contains(list, wildcard) {
		return field.ErrorList{
			field.Invalid(at, list, "must have no other entry if "+string(wildcard)+" is present"),
		}
	}
	return nil
}

// oneOf requires value to be unset or one of the supported values.
func oneOf[S ~string](value *S, supported sets.Set[S], at *field.Path) field.ErrorList {
	if value == nil || supported.Has(*value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, *value, sets.List(supported))}
}
