package legacy

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/addresses"
	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/features"
)

// preparePodStatus restores what an update of the status may not change.
func preparePodStatus(_ context.Context, p, old *corev1.Pod) {
	p.DeletionTimestamp = old.DeletionTimestamp
	p.OwnerReferences = old.OwnerReferences
	if p.Status.QOSClass == "" {
		p.Status.QOSClass = old.Status.QOSClass
	}
	// Clients that do not support claims omit them. An empty list clears the field.
	if p.Status.ResourceClaimStatuses == nil {
		p.Status.ResourceClaimStatuses = old.Status.ResourceClaimStatuses
	}
	if p.Status.ExtendedResourceClaimStatus == nil {
		p.Status.ExtendedResourceClaimStatus = old.Status.ExtendedResourceClaimStatus
	}
	keepObservedGenerations(&p.Status, &old.Status)
	features.Drop(statusFeatures(), &p.Status, &old.Status, features.Enabled)
}

// keepObservedGenerations restores the observed generations that old kubelets omit.
func keepObservedGenerations(s, old *corev1.PodStatus) {
	keep := func(is *int64, was int64) {
		if *is == 0 {
			*is = was
		}
	}
	keep(&s.ObservedGeneration, old.ObservedGeneration)
	// There may be several conditions of one type.
	was := map[corev1.PodConditionType][]int64{}
	for _, c := range old.Conditions {
		was[c.Type] = append(was[c.Type], c.ObservedGeneration)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if list := was[c.Type]; len(list) > 0 {
			keep(&c.ObservedGeneration, list[0])
			was[c.Type] = list[1:]
		}
	}
}

func containerStatuses(s *corev1.PodStatus) []*corev1.ContainerStatus {
	var all []*corev1.ContainerStatus
	for _, list := range [][]corev1.ContainerStatus{
		s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses,
	} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// podStatusWarnings returns warnings about addresses in an ambiguous or non-canonical form.
func podStatusWarnings(_ context.Context, p, _ *corev1.Pod) []string {
	path := field.NewPath("status")
	var warnings []string
	for i, ip := range p.Status.PodIPs {
		warnings = append(warnings,
			validation.GetWarningsForIP(path.Child("podIPs").Index(i).Child("ip"), ip.IP)...)
	}
	for i, ip := range p.Status.HostIPs {
		warnings = append(warnings,
			validation.GetWarningsForIP(path.Child("hostIPs").Index(i).Child("ip"), ip.IP)...)
	}
	return warnings
}

func validatePodStatus(_ context.Context, p, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("status")
	errs := validateFixedAnnotations(p, old)
	errs = append(errs, validatePodConditions(p, path.Child("conditions"))...)
	errs = append(errs, validatePodAddresses(p, old, path)...)
	if name := p.Status.NominatedNodeName; name != "" && name != old.Status.NominatedNodeName {
		errs = append(errs, invalidName(path.Child("nominatedNodeName"), name)...)
		if old.Spec.NodeName != "" &&
			features.Enabled(features.ClearingNominatedNodeNameAfterBinding) {
			errs = append(errs, field.Forbidden(path.Child("nominatedNodeName"),
				"the pod is already assigned to a node"))
		}
	}
	if p.Status.ObservedGeneration < 0 {
		errs = append(errs, field.Invalid(path.Child("observedGeneration"), p.Status.ObservedGeneration,
			"must not be negative"))
	}
	if p.Status.QOSClass != old.Status.QOSClass {
		errs = append(errs, field.Invalid(path.Child("qosClass"), p.Status.QOSClass,
			"is immutable: it follows from the spec"))
	}
	// The spec of the stored pod determines which containers may restart.
	errs = append(errs, validateTransitions(old, old.Status.ContainerStatuses,
		p.Status.ContainerStatuses, old.Spec.Containers, path.Child("containerStatuses"))...)
	errs = append(errs, validateTransitions(old, old.Status.InitContainerStatuses,
		p.Status.InitContainerStatuses, old.Spec.InitContainers, path.Child("initContainerStatuses"))...)
	errs = append(errs, validateTransitions(nil, old.Status.EphemeralContainerStatuses,
		p.Status.EphemeralContainerStatuses, nil, path.Child("ephemeralContainerStatuses"))...)
	for name, list := range map[string][]corev1.ContainerStatus{
		"containerStatuses":          p.Status.ContainerStatuses,
		"initContainerStatuses":      p.Status.InitContainerStatuses,
		"ephemeralContainerStatuses": p.Status.EphemeralContainerStatuses,
	} {
		errs = append(errs, validateContainerUsers(p, list, path.Child(name))...)
	}
	errs = append(errs, validateAllocated(p, p.Status.ContainerStatuses, p.Spec.Containers,
		path.Child("containerStatuses"))...)
	errs = append(errs, validateAllocated(p, p.Status.InitContainerStatuses, p.Spec.InitContainers,
		path.Child("initContainerStatuses"))...)
	for i, s := range p.Status.EphemeralContainerStatuses {
		if len(s.AllocatedResourcesStatus) > 0 {
			errs = append(errs, field.Forbidden(path.Child("ephemeralContainerStatuses").Index(i).
				Child("allocatedResourcesStatus"), "may not be set for ephemeral containers"))
		}
	}
	errs = append(errs, validateExtendedClaim(p, path.Child("extendedResourceClaimStatus"))...)
	return append(errs, validateClaimStatuses(p, path.Child("resourceClaimStatuses"))...)
}

func validatePodConditions(p *corev1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range p.Status.Conditions {
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("observedGeneration"),
				c.ObservedGeneration, "must not be negative"))
		}
		// kube-apiserver capitalizes Type in the path.
		errs = append(errs, rules.Invalid(path.Index(i).Child("Type"), c.Type,
			validation.IsQualifiedName(string(c.Type)))...)
	}
	return errs
}

func validatePodAddresses(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	var is, was []string
	for _, ip := range p.Status.PodIPs {
		is = append(is, ip.IP)
	}
	for _, ip := range old.Status.PodIPs {
		was = append(was, ip.IP)
	}
	errs := validateAddresses(is, was, path.Child("podIPs"))

	is, was = nil, nil
	for _, ip := range p.Status.HostIPs {
		is = append(is, ip.IP)
	}
	for _, ip := range old.Status.HostIPs {
		was = append(was, ip.IP)
	}
	if len(is) > 0 && is[0] != p.Status.HostIP {
		errs = append(errs, field.Invalid(path.Child("hostIPs").Index(0).Child("ip"),
			is[0], "must equal hostIP"))
	}
	return append(errs, validateAddresses(is, was, path.Child("hostIPs"))...)
}

// validateAddresses validates the addresses and checks that there is at most one of each IP family.
func validateAddresses(is, was []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	old := sets.New(was...)
	for i, ip := range is {
		errs = append(errs, addresses.IP(path.Index(i), ip, old)...)
	}
	if len(is) < 2 {
		return errs
	}
	dual, err := netutils.IsDualStackIPStrings(is)
	if err != nil {
		errs = append(errs, field.InternalError(path, err))
	}
	if !dual || len(is) > 2 {
		errs = append(errs, field.Invalid(path, is, "may have at most one address of each IP family"))
	}
	return errs
}

// validateTransitions checks that a container that terminated for good does not leave that state.
// If p is nil, every terminated container has terminated for good.
func validateTransitions(
	p *corev1.Pod, was, is []corev1.ContainerStatus, containers []corev1.Container, path *field.Path,
) field.ErrorList {
	if p != nil && restartsAll(p) {
		return nil
	}
	var errs field.ErrorList
	left, byName := sets.New[string](), containersByName(containers)
	for _, s := range is {
		if s.State.Terminated == nil {
			left.Insert(s.Name)
		}
	}
	for i, old := range was {
		if old.State.Terminated == nil || restarts(p, old, byName[old.Name]) {
			continue
		}
		if left.Has(old.Name) {
			errs = append(errs, field.Forbidden(path.Index(i).Child("state"),
				"a terminated container that may not restart cannot leave the terminated state"))
		}
	}
	return errs
}

// restartsAll reports whether some container may restart the whole pod (KEP-5532).
func restartsAll(p *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers),
		func(c corev1.Container) bool {
			return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
				return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
			})
		})
}

// containersByName returns the first container of each name.
func containersByName(containers []corev1.Container) map[string]*corev1.Container {
	byName := map[string]*corev1.Container{}
	for i := range containers {
		if c := &containers[i]; byName[c.Name] == nil {
			byName[c.Name] = c
		}
	}
	return byName
}

// restarts reports whether the kubelet may restart the terminated container. The first of its
// restart rules that matches the exit code decides, then the restart policy of the container, then
// the restart policy of the pod.
func restarts(p *corev1.Pod, s corev1.ContainerStatus, c *corev1.Container) bool {
	switch {
	case c != nil:
	case p == nil || features.Enabled(features.ContainerRestartRules) ||
		podspec.HasRestartRules(&p.Spec):
		return false
	default: // the pod has no such container: without rules, only the policy of the pod counts
		c = &corev1.Container{}
	}
	code := s.State.Terminated.ExitCode
	policy := string(p.Spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = string(*c.RestartPolicy)
		for _, r := range c.RestartPolicyRules {
			if r.ExitCodes == nil {
				continue
			}
			listed := slices.Contains(r.ExitCodes.Values, code)
			if listed == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
				if r.Action == corev1.ContainerRestartRuleActionRestart {
					return true
				}
				break
			}
		}
	}
	switch policy {
	case string(corev1.RestartPolicyAlways):
		return true
	case string(corev1.RestartPolicyOnFailure):
		return code != 0
	}
	return false
}

func validateContainerUsers(
	p *corev1.Pod, list []corev1.ContainerStatus, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	for i, s := range list {
		if s.User == nil || s.User.Linux == nil {
			continue
		}
		at := path.Index(i).Child("user", "linux")
		if p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
			errs = append(errs, field.Forbidden(at, "may not be set for a Windows pod"))
			continue
		}
		check := func(id int64, at *field.Path) {
			errs = append(errs, rules.Invalid(at, id, validation.IsValidUserID(id))...)
		}
		check(s.User.Linux.UID, at.Child("uid"))
		check(s.User.Linux.GID, at.Child("gid"))
		for j, group := range s.User.Linux.SupplementalGroups {
			check(group, at.Child("supplementalGroups").Index(j))
		}
	}
	return errs
}

func validateClaimStatuses(p *corev1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	known, seen := sets.Set[string]{}, sets.Set[string]{}
	for _, claim := range p.Spec.ResourceClaims {
		known.Insert(claim.Name)
	}
	for i, s := range p.Status.ResourceClaimStatuses {
		at := path.Index(i).Child("name")
		if !known.Has(s.Name) {
			errs = append(errs, field.Invalid(at, s.Name,
				"must be the name of an entry in spec.resourceClaims"))
		}
		if seen.Has(s.Name) {
			errs = append(errs, field.Duplicate(at, s.Name))
		}
		seen.Insert(s.Name)
		if s.ResourceClaimName != nil {
			errs = append(errs, invalidName(path.Index(i).Child("resourceClaimName"),
				*s.ResourceClaimName)...)
		}
	}
	return errs
}
