package quota

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/core"
)

func pods(list lists) quota.Evaluator {
	gvr := corev1.SchemeGroupVersion.WithResource("pods")
	return &evaluator[*corev1.Pod]{
		resource: gvr.GroupResource(),
		list:     list(gvr),
		handles: func(a admission.Attributes) bool {
			return onCreate(a) ||
				a.GetOperation() == admission.Update && (a.GetSubresource() == "resize" || changesScope(a))
		},
		limits:   limitsPods,
		usage:    func(pod *corev1.Pod) corev1.ResourceList { return podUsage(pod, time.Now()) },
		inScope:  podInScope,
		requires: requireExplicit,
	}
}

var podCount = generic.ObjectCountQuotaResourceNameFor(corev1.Resource("pods"))

func limitsPods(name corev1.ResourceName) bool {
	switch name {
	case podCount, corev1.ResourcePods,
		corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
		corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory,
		corev1.ResourceEphemeralStorage, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsEphemeralStorage:
		return true
	}
	requested, isRequest := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	if strings.HasPrefix(requested, corev1.ResourceHugePagesPrefix) {
		return true
	}
	return isRequest && !core.IsNativeResource(name)
}

// podUsage returns the usage of a pod. A pod that has ended counts only as an object: it still
// exists but uses no resources.
func podUsage(pod *corev1.Pod, now time.Time) corev1.ResourceList {
	one := *apiresource.NewQuantity(1, apiresource.DecimalSI)
	used := corev1.ResourceList{podCount: one}
	ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	if pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil {
		grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
		// the node has not confirmed the deletion
		ended = ended || now.After(pod.DeletionTimestamp.Add(grace))
	}
	if ended {
		return used
	}
	used[corev1.ResourcePods] = one
	options := resource.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	}
	for name, q := range resource.PodRequests(pod, options) {
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory,
			name == corev1.ResourceEphemeralStorage, core.IsHugePages(name):
			used[name] = q
			used[corev1.DefaultResourceRequestsPrefix+name] = q
		case core.IsExtendedResource(name):
			used[corev1.DefaultResourceRequestsPrefix+name] = q
		}
	}
	for name, q := range resource.PodLimits(pod, options) {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			used["limits."+name] = q
		}
	}
	return used
}

func podInScope(scope corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) (bool, error) {
	switch scope.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating(pod), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating(pod), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return IsBestEffort(pod), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !IsBestEffort(pod), nil
	case corev1.ResourceQuotaScopePriorityClass:
		if scope.Operator == corev1.ScopeSelectorOpExists {
			return pod.Spec.PriorityClassName != "", nil
		}
		return selected(scope, pod.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return reachesOut(pod.Spec.Affinity), nil
	}
	return false, nil
}

// selected reports whether the operator and values of a scope select value. An empty value stands
// for none.
func selected(scope corev1.ScopedResourceSelectorRequirement, value string) (bool, error) {
	operator := map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn:           selection.In,
		corev1.ScopeSelectorOpNotIn:        selection.NotIn,
		corev1.ScopeSelectorOpExists:       selection.Exists,
		corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}[scope.Operator]
	requirement, err := labels.NewRequirement(string(scope.ScopeName), operator, scope.Values)
	if err != nil {
		return false, fmt.Errorf("scope %s: %w", scope.ScopeName, err)
	}
	set := labels.Set{}
	if value != "" {
		set[string(scope.ScopeName)] = value
	}
	return requirement.Matches(set), nil
}

// changesScope reports whether an update adds an active deadline to a pod or removes it.
func changesScope(a admission.Attributes) bool {
	pod, ok := a.GetObject().(*corev1.Pod)
	old, hadOne := a.GetOldObject().(*corev1.Pod)
	return ok && hadOne && a.GetSubresource() == "" && terminating(pod) != terminating(old)
}

func terminating(pod *corev1.Pod) bool {
	return ptr.Deref(pod.Spec.ActiveDeadlineSeconds, -1) >= 0
}

// IsBestEffort reports whether a pod has no requests and limits of CPU and memory. Pod-level
// resources take precedence over the resources of containers.
func IsBestEffort(pod *corev1.Pod) bool {
	asks := func(r corev1.ResourceRequirements) bool {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if q := list[name]; q.Sign() > 0 {
					return true
				}
			}
		}
		return false
	}
	if resource.IsPodLevelResourcesSet(pod) {
		return !asks(*pod.Spec.Resources)
	}
	return !slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers),
		func(c corev1.Container) bool { return asks(c.Resources) })
}

// reachesOut reports whether an affinity term can select pods in other namespaces.
func reachesOut(affinity *corev1.Affinity) bool {
	if affinity == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, p := range preferred {
			terms = append(terms, p.PodAffinityTerm)
		}
	}
	if a := affinity.PodAffinity; a != nil {
		add(a.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := affinity.PodAntiAffinity; a != nil {
		add(a.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool {
		return len(t.Namespaces) > 0 || t.NamespaceSelector != nil
	})
}

// requireExplicit rejects containers that do not specify CPU or memory where a quota limits it,
// because an unspecified amount does not mean zero.
func requireExplicit(limited []corev1.ResourceName, pod *corev1.Pod) error {
	var errs []error
	missing := func(who string, r corev1.ResourceRequirements) {
		for _, name := range limited {
			list, base := r.Requests, corev1.ResourceName(strings.TrimPrefix(string(name),
				corev1.DefaultResourceRequestsPrefix))
			if limit, ok := strings.CutPrefix(string(name), "limits."); ok {
				list, base = r.Limits, corev1.ResourceName(limit)
			}
			if base != corev1.ResourceCPU && base != corev1.ResourceMemory {
				continue
			}
			if _, ok := list[base]; !ok {
				errs = append(errs, fmt.Errorf("%s must specify %s", who, name))
			}
		}
	}
	if resource.IsPodLevelResourcesSet(pod) {
		return nil // pod-level resources bound the whole pod
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		missing("container "+c.Name, c.Resources)
	}
	return errors.Join(errs...)
}
