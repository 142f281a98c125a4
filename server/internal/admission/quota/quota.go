// Package quota computes what objects use of a resource quota. It has an evaluator for each
// resource that counts by more than its number of objects.
//
// The admission plugin ResourceQuota of k8s.io/apiserver uses the evaluators. A controller that
// keeps status.used up to date can use them too. All other resources can be limited by their number
// of objects, as count/<resource>.<group>.
package quota

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// Configuration returns a configuration with all evaluators. They list the objects of a namespace
// with lister, which may be nil if only single objects are evaluated, as in admission.
func Configuration(lister quota.ListerForResourceFunc) quota.Configuration {
	list := func(resource schema.GroupVersionResource) generic.ListFuncByNamespace {
		if lister == nil {
			return nil
		}
		return generic.ListResourceUsingListerFunc(lister, resource)
	}
	evaluators := []quota.Evaluator{pods(list), services(list), claims(list), resourceClaims(list)}
	// Quotas could limit the number of these before count/ was introduced.
	for _, name := range []string{
		"configmaps", "secrets", "replicationcontrollers", "resourcequotas",
	} {
		resource := corev1.SchemeGroupVersion.WithResource(name)
		evaluators = append(evaluators, generic.NewObjectCountEvaluator(resource.GroupResource(),
			list(resource), corev1.ResourceName(name)))
	}
	return generic.NewConfiguration(evaluators, map[schema.GroupResource]struct{}{
		corev1.Resource("events"):   {},
		eventsv1.Resource("events"): {},
		// These are not stored.
		corev1.Resource("bindings"):                           {},
		corev1.Resource("componentstatuses"):                  {},
		authenticationv1.Resource("tokenreviews"):             {},
		authenticationv1.Resource("selfsubjectreviews"):       {},
		authorizationv1.Resource("subjectaccessreviews"):      {},
		authorizationv1.Resource("selfsubjectaccessreviews"):  {},
		authorizationv1.Resource("localsubjectaccessreviews"): {},
		authorizationv1.Resource("selfsubjectrulesreviews"):   {},
	})
}

// lists returns the list function for a resource.
type lists func(schema.GroupVersionResource) generic.ListFuncByNamespace

// evaluator is a quota.Evaluator for objects of type T.
type evaluator[T runtime.Object] struct {
	resource schema.GroupResource
	list     generic.ListFuncByNamespace
	// handles reports whether a request can change the usage.
	handles func(a admission.Attributes) bool
	// limits reports whether a name in a quota's spec.hard is about the resource.
	limits func(name corev1.ResourceName) bool
	usage  func(obj T) corev1.ResourceList
	// inScope is nil if the resource has no scopes.
	inScope func(scope corev1.ScopedResourceSelectorRequirement, obj T) (bool, error)
	// requires checks that an object specifies the limited resources. It is nil if objects may omit
	// them.
	requires func(limited []corev1.ResourceName, obj T) error
}

func (e *evaluator[T]) GroupResource() schema.GroupResource { return e.resource }

func (e *evaluator[T]) Handles(a admission.Attributes) bool { return e.handles(a) }

func (e *evaluator[T]) cast(obj runtime.Object) (T, error) {
	o, ok := obj.(T)
	if !ok {
		return o, fmt.Errorf("quota of %s: unexpected type %T", e.resource, obj)
	}
	return o, nil
}

func (e *evaluator[T]) Constraints(required []corev1.ResourceName, item runtime.Object) error {
	if e.requires == nil {
		return nil
	}
	obj, err := e.cast(item)
	if err != nil {
		return err
	}
	return e.requires(required, obj)
}

func (e *evaluator[T]) matches(
	scope corev1.ScopedResourceSelectorRequirement, item runtime.Object,
) (bool, error) {
	if e.inScope == nil {
		return false, nil
	}
	obj, err := e.cast(item)
	if err != nil {
		return false, err
	}
	return e.inScope(scope, obj)
}

func (e *evaluator[T]) Matches(quota *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(quota, item, e.MatchingResources, e.matches)
}

func (e *evaluator[T]) MatchingScopes(
	item runtime.Object, scopes []corev1.ScopedResourceSelectorRequirement,
) ([]corev1.ScopedResourceSelectorRequirement, error) {
	var in []corev1.ScopedResourceSelectorRequirement
	for _, s := range scopes {
		ok, err := e.matches(s, item)
		if err != nil {
			return nil, err
		}
		if ok {
			in = append(in, s)
		}
	}
	return in, nil
}

func (e *evaluator[T]) UncoveredQuotaScopes(
	limited, matched []corev1.ScopedResourceSelectorRequirement,
) ([]corev1.ScopedResourceSelectorRequirement, error) {
	var uncovered []corev1.ScopedResourceSelectorRequirement
	for _, l := range limited {
		same := func(m corev1.ScopedResourceSelectorRequirement) bool {
			return m.ScopeName == l.ScopeName
		}
		if !slices.ContainsFunc(matched, same) {
			uncovered = append(uncovered, l)
		}
	}
	return uncovered, nil
}

func (e *evaluator[T]) MatchingResources(input []corev1.ResourceName) []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, name := range input {
		if e.limits(name) {
			names = append(names, name)
		}
	}
	return names
}

func (e *evaluator[T]) Usage(item runtime.Object) (corev1.ResourceList, error) {
	obj, err := e.cast(item)
	if err != nil {
		return nil, err
	}
	return e.usage(obj), nil
}

func (e *evaluator[T]) UsageStats(options quota.UsageStatsOptions) (quota.UsageStats, error) {
	if e.list == nil {
		return quota.UsageStats{}, fmt.Errorf("quota of %s: no lister was configured", e.resource)
	}
	stats := quota.UsageStats{Used: corev1.ResourceList{}}
	for _, name := range options.Resources {
		stats.Used[name] = resource.Quantity{Format: resource.DecimalSI}
	}
	items, err := e.list(options.Namespace)
	if err != nil {
		return stats, fmt.Errorf("quota of %s: %w", e.resource, err)
	}
	scopes := scopesOf(options)
	for _, item := range items {
		in, err := e.MatchingScopes(item, scopes)
		if err != nil {
			return stats, nil // a scope that nothing is in
		}
		if len(in) < len(scopes) {
			continue
		}
		used, err := e.Usage(item)
		if err != nil {
			return stats, err
		}
		// Only what the object uses is added: a quota may name thousands of resources.
		for name, n := range used {
			sum := stats.Used[name]
			sum.Add(n)
			stats.Used[name] = sum
		}
	}
	return stats, nil
}

// scopesOf returns the scopes of both kinds that a quota can have.
func scopesOf(options quota.UsageStatsOptions) []corev1.ScopedResourceSelectorRequirement {
	var scopes []corev1.ScopedResourceSelectorRequirement
	for _, name := range options.Scopes {
		scopes = append(scopes, corev1.ScopedResourceSelectorRequirement{
			ScopeName: name, Operator: corev1.ScopeSelectorOpExists,
		})
	}
	if options.ScopeSelector != nil {
		scopes = append(scopes, options.ScopeSelector.MatchExpressions...)
	}
	return scopes
}

// Used returns what is used of the resources that a quota limits, as far as the evaluators know
// them. If some cannot be counted, it returns the others and an error. Unlike CalculateUsage of
// k8s.io/apiserver, Used takes time in proportion to the number of the resources.
func Used(
	q *corev1.ResourceQuota, evaluators []quota.Evaluator,
) (corev1.ResourceList, error) {
	limited := quota.ResourceNames(q.Spec.Hard)
	used, failed := corev1.ResourceList{}, corev1.ResourceList{}
	var errs []error
	for _, e := range evaluators {
		names := e.MatchingResources(limited)
		if len(names) == 0 {
			continue
		}
		stats, err := e.UsageStats(quota.UsageStatsOptions{
			Namespace: q.Namespace, Scopes: q.Spec.Scopes, ScopeSelector: q.Spec.ScopeSelector,
			Resources: names,
		})
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range names {
			if err != nil {
				failed[name] = resource.Quantity{}
			}
			sum := used[name]
			sum.Add(stats.Used[name])
			used[name] = sum
		}
	}
	maps.DeleteFunc(used, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, ok := failed[name]
		return ok
	})
	return used, errors.Join(errs...)
}

// onCreate reports whether a request creates an object. onWrite also reports true for updates.
func onCreate(a admission.Attributes) bool {
	return a.GetSubresource() == "" && a.GetOperation() == admission.Create
}

func onWrite(a admission.Attributes) bool {
	return a.GetSubresource() == "" &&
		(a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}
