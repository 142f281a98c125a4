package core

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kinproc/kinproc/chain/core/rules"
)

// preparePodStatus keeps kubelets from touching what is none of their business.
func preparePodStatus(_ context.Context, p, old *corev1.Pod) {
	p.DeletionTimestamp = old.DeletionTimestamp
	p.OwnerReferences = old.OwnerReferences
	if p.Status.QOSClass == "" {
		p.Status.QOSClass = old.Status.QOSClass
	}
	if p.Status.ObservedGeneration == 0 {
		p.Status.ObservedGeneration = old.Status.ObservedGeneration
	}
}

func validatePodStatus(_ context.Context, p, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("status")
	errs := validateFixedAnnotations(p, old)
	errs = append(errs, validatePodConditions(p, path.Child("conditions"))...)
	errs = append(errs, validatePodAddresses(p, old, path)...)
	if name := p.Status.NominatedNodeName; name != "" && name != old.Status.NominatedNodeName {
		errs = append(errs, invalidName(path.Child("nominatedNodeName"), name)...)
	}
	if p.Status.ObservedGeneration < 0 {
		errs = append(errs, field.Invalid(path.Child("observedGeneration"), p.Status.ObservedGeneration, "must not be negative"))
	}
	if old.Status.QOSClass != "" && p.Status.QOSClass != old.Status.QOSClass {
		errs = append(errs, field.Invalid(path.Child("qosClass"), p.Status.QOSClass, "follows from the spec and never changes"))
	}
	errs = append(errs, validateTransitions(p, old.Status.ContainerStatuses, p.Status.ContainerStatuses, p.Spec.Containers, path.Child("containerStatuses"))...)
	errs = append(errs, validateTransitions(p, old.Status.InitContainerStatuses, p.Status.InitContainerStatuses, p.Spec.InitContainers, path.Child("initContainerStatuses"))...)
	for name, list := range map[string][]corev1.ContainerStatus{
		"containerStatuses":          p.Status.ContainerStatuses,
		"initContainerStatuses":      p.Status.InitContainerStatuses,
		"ephemeralContainerStatuses": p.Status.EphemeralContainerStatuses,
	} {
		errs = append(errs, validateContainerUsers(p, list, path.Child(name))...)
	}
	return append(errs, validateClaimStatuses(p, path.Child("resourceClaimStatuses"))...)
}

func invalidName(path *field.Path, name string) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range apivalidation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(path, name, msg))
	}
	return errs
}

func validatePodConditions(p *corev1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range p.Status.Conditions {
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("observedGeneration"), c.ObservedGeneration, "must not be negative"))
		}
		for _, msg := range validation.IsQualifiedName(string(c.Type)) {
			// The capital is kube-apiserver's.
			errs = append(errs, field.Invalid(path.Index(i).Child("Type"), c.Type, msg))
		}
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
		errs = append(errs, field.Invalid(path.Child("hostIPs").Index(0).Child("ip"), is[0], "must be hostIP"))
	}
	return append(errs, validateAddresses(is, was, path.Child("hostIPs"))...)
}

// validateAddresses checks that there is at most one address of each family.
func validateAddresses(is, was []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, ip := range is {
		errs = append(errs, rules.IP(path.Index(i), ip, was)...)
	}
	if len(errs) > 0 || len(is) < 2 {
		return errs
	}
	if dual, err := netutils.IsDualStackIPStrings(is); err != nil || !dual || len(is) > 2 {
		errs = append(errs, field.Invalid(path, is, "may have one address of each family"))
	}
	for i, ip := range is {
		if slices.Contains(is[:i], ip) {
			errs = append(errs, field.Duplicate(path.Index(i), ip))
		}
	}
	return errs
}

// validateTransitions checks that a container that ended for good stays ended.
func validateTransitions(p *corev1.Pod, was, is []corev1.ContainerStatus, containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, old := range was {
		if old.State.Terminated == nil || restarts(p, old, containers) {
			continue
		}
		for _, s := range is {
			if s.Name == old.Name && s.State.Terminated == nil {
				errs = append(errs, field.Forbidden(path.Index(i).Child("state"), "a container that ended does not start again"))
			}
		}
	}
	return errs
}

// restarts says that the kubelet may start the ended container again.
func restarts(p *corev1.Pod, s corev1.ContainerStatus, containers []corev1.Container) bool {
	failed := s.State.Terminated.ExitCode != 0
	for _, c := range containers {
		if c.Name != s.Name || c.RestartPolicy == nil {
			continue
		}
		if len(c.RestartPolicyRules) > 0 || *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			return true
		}
		return *c.RestartPolicy == corev1.ContainerRestartPolicyOnFailure && failed
	}
	switch p.Spec.RestartPolicy {
	case corev1.RestartPolicyAlways:
		return true
	case corev1.RestartPolicyOnFailure:
		return failed
	}
	return false
}

func validateContainerUsers(p *corev1.Pod, list []corev1.ContainerStatus, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, s := range list {
		if s.User == nil || s.User.Linux == nil {
			continue
		}
		at := path.Index(i).Child("user", "linux")
		if p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
			errs = append(errs, field.Forbidden(at, "Windows has no such thing"))
			continue
		}
		check := func(id int64, at *field.Path) {
			for _, msg := range validation.IsValidUserID(id) {
				errs = append(errs, field.Invalid(at, id, msg))
			}
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
			errs = append(errs, field.Invalid(at, s.Name, "is none of spec.resourceClaims"))
		}
		if seen.Has(s.Name) {
			errs = append(errs, field.Duplicate(at, s.Name))
		}
		seen.Insert(s.Name)
		if s.ResourceClaimName != nil {
			errs = append(errs, invalidName(at, *s.ResourceClaimName)...)
		}
	}
	return errs
}
