package legacy

import (
	"context"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
)

// validatePodUpdate allows a pod to change its images, shorten its deadline, add tolerations and
// remove scheduling gates. While it has gates, the pod may also restrict the nodes that it may run
// on.
func validatePodUpdate(_ context.Context, p, old *corev1.Pod) field.ErrorList {
	errs := podspec.ValidatePod(p, podspec.PodOptionsFor(p, old))
	errs = append(errs, validateFixedAnnotations(p, old)...)

	spec := field.NewPath("spec")
	if wrong := sameContainers(p, old, spec); len(wrong) > 0 {
		return append(errs, wrong...)
	}
	wrong, further := validateDeadlineUpdate(p, old, spec.Child("activeDeadlineSeconds"))
	errs = append(errs, wrong...)
	if !further {
		return errs
	}
	errs = append(errs, validateAddedTolerations(p, old, spec.Child("tolerations"))...)
	gates := sets.New(old.Spec.SchedulingGates...)
	for i, gate := range p.Spec.SchedulingGates {
		if !gates.Has(gate) {
			errs = append(errs, field.Forbidden(spec.Child("schedulingGates").Index(i).Child("name"),
				fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name)))
		}
	}

	// Revert the permitted changes. Any difference that remains is forbidden.
	rest := p.Spec.DeepCopy()
	for i := range rest.Containers {
		rest.Containers[i].Image = old.Spec.Containers[i].Image
	}
	for i := range rest.InitContainers {
		rest.InitContainers[i].Image = old.Spec.InitContainers[i].Image
	}
	rest.ActiveDeadlineSeconds = old.Spec.ActiveDeadlineSeconds
	rest.Tolerations = old.Spec.Tolerations
	rest.SchedulingGates = old.Spec.SchedulingGates
	if was, is := old.Spec.TerminationGracePeriodSeconds,
		rest.TerminationGracePeriodSeconds; was != nil && is != nil && *was < 0 && *is == 1 {
		rest.TerminationGracePeriodSeconds = was
	}
	if len(old.Spec.SchedulingGates) > 0 {
		errs = append(errs, validateNarrowed(rest, &old.Spec, spec)...)
	}
	if !equality.Semantic.DeepEqual(rest, &old.Spec) {
		errs = append(errs, field.Forbidden(spec,
			"pod updates may not change fields other than `spec.containers[*].image`, "+
				"`spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, "+
				"`spec.tolerations` (only additions to existing tolerations), "+
				"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously "+
				"negative), `spec.schedulingGates` (only removals)"))
	}
	return errs
}

// sameContainers checks that no container was added or removed.
func sameContainers(p, old *corev1.Pod, spec *field.Path) field.ErrorList {
	name := ""
	switch {
	case len(p.Spec.Containers) != len(old.Spec.Containers):
		name = "containers"
	case len(p.Spec.InitContainers) != len(old.Spec.InitContainers):
		name = "initContainers"
	default:
		return nil
	}
	return field.ErrorList{
		field.Forbidden(spec.Child(name), "pod updates may not add or remove containers"),
	}
}

// validateDeadlineUpdate checks that the deadline is only set or shortened. The result further is
// false if the deadline is out of range or longer than before: then the other fields are not
// validated.
func validateDeadlineUpdate(
	p, old *corev1.Pod, path *field.Path,
) (errs field.ErrorList, further bool) {
	is, was := p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds
	switch {
	case is == nil && was != nil:
		return field.ErrorList{field.Invalid(path, is, "cannot be removed")}, true
	case is == nil:
		return nil, true
	case *is < 0 || *is > math.MaxInt32:
		return field.ErrorList{
			field.Invalid(path, *is, validation.InclusiveRangeError(0, math.MaxInt32)),
		}, false
	case was != nil && *is > *was:
		return field.ErrorList{field.Invalid(path, *is, "must be less than or equal to previous value")},
			false
	}
	return nil, true
}

// validateAddedTolerations checks that every old toleration is kept. Only its tolerationSeconds may
// change.
func validateAddedTolerations(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	kept := map[corev1.Toleration]bool{}
	for _, is := range p.Spec.Tolerations {
		is.TolerationSeconds = nil
		kept[is] = true
	}
	for _, was := range old.Spec.Tolerations {
		was.TolerationSeconds = nil
		if !kept[was] {
			return field.ErrorList{field.Forbidden(path,
				"existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return nil
}

// validateNarrowed validates the node selector and node affinity of a gated pod, which may only
// exclude more nodes (KEP-3838). It reverts the changes in rest.
func validateNarrowed(rest, old *corev1.PodSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	for key, value := range old.NodeSelector {
		if is, ok := rest.NodeSelector[key]; !ok || is != value {
			errs = append(errs, field.Invalid(spec.Child("nodeSelector"), rest.NodeSelector,
				"only additions are allowed"))
			break
		}
	}
	rest.NodeSelector = old.NodeSelector

	var is, was *corev1.NodeAffinity
	if rest.Affinity != nil {
		is = rest.Affinity.NodeAffinity
	}
	if old.Affinity != nil {
		was = old.Affinity.NodeAffinity
	}
	errs = append(errs, validateNarrowedAffinity(is, was, spec.Child("affinity", "nodeAffinity"))...)
	switch {
	case rest.Affinity == nil:
		rest.Affinity = old.Affinity
	case old.Affinity == nil && rest.Affinity.PodAffinity == nil &&
		rest.Affinity.PodAntiAffinity == nil:
		rest.Affinity = nil
	default:
		rest.Affinity.NodeAffinity = was
	}
	return errs
}

func validateNarrowedAffinity(is, was *corev1.NodeAffinity, path *field.Path) field.ErrorList {
	if was == nil || was.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	terms := was.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	at := path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	if len(terms) == 0 {
		return nil
	}
	if is == nil || is.RequiredDuringSchedulingIgnoredDuringExecution == nil ||
		len(is.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) != len(terms) {
		return field.ErrorList{field.Invalid(at, is, "terms cannot be added or removed")}
	}
	var errs field.ErrorList
	for i, term := range is.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if (len(terms[i].MatchExpressions) == 0 && len(terms[i].MatchFields) == 0) &&
			(len(term.MatchExpressions) > 0 || len(term.MatchFields) > 0) {
			// An empty term matches nothing. With a requirement, it would match more nodes.
			errs = append(errs, field.Invalid(at.Index(i), term, "an empty term may not be changed"))
			continue
		}
		if !extends(term.MatchExpressions, terms[i].MatchExpressions) ||
			!extends(term.MatchFields, terms[i].MatchFields) {
			errs = append(errs, field.Invalid(at.Index(i), term, "only additions to a term are allowed"))
		}
	}
	return errs
}

// extends reports whether was is a prefix of is.
func extends(is, was []corev1.NodeSelectorRequirement) bool {
	return len(is) >= len(was) && equality.Semantic.DeepEqual(is[:len(was)], was)
}

// validateFixedAnnotations checks that the annotations of mirror pods and AppArmor, which are fixed
// at creation, did not change.
func validateFixedAnnotations(p, old *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("metadata", "annotations")
	keys := sets.KeySet(p.Annotations).Union(sets.KeySet(old.Annotations))
	for _, key := range sets.List(keys) {
		if key != corev1.MirrorPodAnnotationKey &&
			!strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
			continue
		}
		is, now := p.Annotations[key]
		was, before := old.Annotations[key]
		if is != was || now != before {
			errs = append(errs, field.Forbidden(path.Key(key),
				"may not be changed after the pod is created"))
		}
	}
	return errs
}
