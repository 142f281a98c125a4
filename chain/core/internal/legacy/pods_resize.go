package legacy

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/features"
)

// keepAllBut reverts p to old, except for what change copies from the new spec.
func keepAllBut(p, old *corev1.Pod, change func(spec, wanted *corev1.PodSpec)) {
	wanted := p.Spec
	p.Spec, p.Status = *old.Spec.DeepCopy(), *old.Status.DeepCopy()
	metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
	change(&p.Spec, &wanted)
	if !equality.Semantic.DeepEqual(p.Spec, old.Spec) {
		p.Generation = old.Generation + 1
	}
}

// validateChangedPod validates the whole pod like a new one, but tolerates what old already has.
func validateChangedPod(p, old *corev1.Pod) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&p.ObjectMeta, true, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))
	return append(errs, podspec.ValidatePod(p, podspec.PodOptionsFor(p, old))...)
}

func prepareEphemeralContainers(_ context.Context, p, old *corev1.Pod) {
	keepAllBut(p, old, func(spec, wanted *corev1.PodSpec) {
		spec.EphemeralContainers = wanted.EphemeralContainers
		podspec.DropDisabledSpecFields(spec, &old.Spec)
	})
}

// validateEphemeralContainers allows ephemeral containers to be added, but not to be changed or
// removed (KEP-277).
func validateEphemeralContainers(_ context.Context, p, old *corev1.Pod) field.ErrorList {
	errs := validateChangedPod(p, old)
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return field.ErrorList{
			field.Forbidden(field.NewPath(""), "static pods may not have ephemeral containers"),
		}
	}
	path := field.NewPath("spec", "ephemeralContainers")
	byName := map[string]*corev1.EphemeralContainer{}
	for i := range p.Spec.EphemeralContainers {
		byName[p.Spec.EphemeralContainers[i].Name] = &p.Spec.EphemeralContainers[i]
	}
	for i := range old.Spec.EphemeralContainers {
		was := &old.Spec.EphemeralContainers[i]
		is, ok := byName[was.Name]
		switch {
		case !ok:
			errs = append(errs, field.Forbidden(path,
				fmt.Sprintf("ephemeral container %q cannot be removed", was.Name)))
		case !equality.Semantic.DeepEqual(is, was):
			errs = append(errs, field.Forbidden(path,
				fmt.Sprintf("ephemeral container %q cannot be changed", was.Name)))
		}
	}
	return errs
}

func prepareResize(_ context.Context, p, old *corev1.Pod) {
	if len(p.Spec.Containers) != len(old.Spec.Containers) ||
		len(p.Spec.InitContainers) != len(old.Spec.InitContainers) {
		// Validation refuses this update, so other changes do not matter.
		return
	}
	keepAllBut(p, old, func(spec, wanted *corev1.PodSpec) {
		spec.Containers = resized(spec.Containers, wanted.Containers)
		spec.InitContainers = resized(spec.InitContainers, wanted.InitContainers)
		if features.Enabled(features.InPlacePodLevelResourcesVerticalScaling) {
			spec.Resources = wanted.Resources
			podspec.KeepPodResources(spec, &old.Spec)
		}
		podspec.DefaultPodResources(spec)
		podspec.DropDisabledSpecFields(spec, &old.Spec)
	})
}

// resized returns containers with the resources and resize policies of wanted. If the names differ,
// it returns wanted, which validation then refuses.
func resized(containers, wanted []corev1.Container) []corev1.Container {
	for i := range containers {
		if containers[i].Name != wanted[i].Name {
			return wanted
		}
	}
	for i := range containers {
		containers[i].Resources = wanted[i].Resources
		containers[i].ResizePolicy = wanted[i].ResizePolicy
	}
	return containers
}

// validateResize allows the cpu and memory of running pods and containers to change (KEP-1287,
// KEP-5419).
func validateResize(_ context.Context, p, old *corev1.Pod) field.ErrorList {
	errs := validateChangedPod(p, old)
	spec := field.NewPath("spec")
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	}
	if old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "Windows pods cannot be resized")}
	}
	was := old.Status.QOSClass
	if was == "" {
		was = podQOS(old)
	}
	if is := podQOS(p); is != was {
		errs = append(errs, field.Invalid(spec, is,
			"the QoS class of the pod, "+string(was)+", may not change"))
	}
	if !nodeResizes(old) {
		errs = append(errs, field.Forbidden(spec, "the node of the pod does not support resizing"))
	}
	rest := p.Spec.DeepCopy()
	if hasResources(&p.Spec) || hasResources(&old.Spec) {
		if !features.Enabled(features.InPlacePodLevelResourcesVerticalScaling) {
			return append(errs, field.Forbidden(field.NewPath(""),
				"pod-level resources cannot be resized: InPlacePodLevelResourcesVerticalScaling is off"))
		}
		errs = append(errs, takeBackPodResize(rest, &old.Spec, spec)...)
	}
	if len(old.Status.NodeAllocatableResourceClaimStatuses) > 0 {
		errs = append(errs, field.Forbidden(spec,
			"a pod whose resource claims use allocatable resources of the node cannot be resized"))
	}
	wrong := sameOrder(p.Spec.Containers, old.Spec.Containers, spec.Child("containers"))
	wrong = append(wrong, sameOrder(p.Spec.InitContainers, old.Spec.InitContainers,
		spec.Child("initContainers"))...)
	if len(wrong) > 0 {
		return append(errs, wrong...)
	}
	errs = append(errs, takeBackContainers(rest, &old.Spec, spec)...)
	if len(errs) == 0 && !equality.Semantic.DeepEqual(rest, &old.Spec) {
		errs = append(errs, field.Forbidden(spec, "only cpu and memory resources can be resized"))
	}
	return errs
}

// nodeResizes reports whether the node supports resizing. A kubelet that does reports the resources
// of running containers.
func nodeResizes(p *corev1.Pod) bool {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running != nil {
			return c.Resources != nil
		}
	}
	return true
}

func hasResources(spec *corev1.PodSpec) bool {
	return spec.Resources != nil && len(spec.Resources.Requests)+len(spec.Resources.Limits) > 0
}

// takeBackPodResize restores the old pod-level cpu and memory in rest, so that the rest of the spec
// can be compared.
func takeBackPodResize(rest, old *corev1.PodSpec, spec *field.Path) field.ErrorList {
	var was corev1.ResourceRequirements
	if old.Resources != nil {
		if rest.Resources == nil {
			return field.ErrorList{
				field.Forbidden(spec.Child("resources"), "pod-level resources may be changed but not removed"),
			}
		}
		was = *old.Resources
	}
	errs := removedAmounts(rest.Resources, &was, spec.Child("resources"))
	claims := rest.Resources.Claims
	takeBack(rest.Resources, &was)
	rest.Resources.Claims = claims
	if is := rest.Resources; old.Resources == nil &&
		len(is.Requests)+len(is.Limits)+len(is.Claims) == 0 {
		rest.Resources = nil
	}
	if !equality.Semantic.DeepEqual(rest.Resources, old.Resources) {
		errs = append(errs, field.Forbidden(spec, "only the cpu and memory of the pod can be resized"))
	}
	return errs
}

func sameOrder(is, was []corev1.Container, path *field.Path) field.ErrorList {
	if len(is) != len(was) {
		return field.ErrorList{field.Forbidden(path, "a resize may not add or remove containers")}
	}
	var errs field.ErrorList
	for i := range is {
		if is[i].Name != was[i].Name {
			errs = append(errs, field.Forbidden(path.Index(i).Child("name"),
				"a resize may not rename or reorder containers"))
		}
	}
	return errs
}

// takeBackContainers restores the old cpu and memory of the containers in rest, and forbids all
// other changes of the containers.
func takeBackContainers(rest, old *corev1.PodSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range rest.InitContainers {
		c, was, at := &rest.InitContainers[i], &old.InitContainers[i],
			spec.Child("initContainers").Index(i)
		changed := !equality.Semantic.DeepEqual(c, was)
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		if !sidecar && !features.Enabled(features.InPlacePodVerticalScalingInitContainers) {
			if changed {
				errs = append(errs, field.Forbidden(spec,
					"the resources of init containers are immutable, except for those of sidecars"))
			}
			continue
		}
		errs = append(errs, removedAmounts(&c.Resources, &was.Resources, at.Child("resources"))...)
		takeBack(&c.Resources, &was.Resources)
		if !equality.Semantic.DeepEqual(c, was) {
			errs = append(errs, field.Forbidden(at, "only cpu and memory resources can be resized"))
		}
		restarts := slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool {
			return p.RestartPolicy == corev1.RestartContainer
		})
		if changed && !sidecar && restarts {
			errs = append(errs, field.Forbidden(at,
				"an init container cannot be restarted to be resized, unless it is a sidecar"))
		}
	}
	for i := range rest.Containers {
		c, was := &rest.Containers[i], &old.Containers[i]
		errs = append(errs, removedAmounts(&c.Resources, &was.Resources,
			spec.Child("containers").Index(i).Child("resources"))...)
		takeBack(&c.Resources, &was.Resources)
		if !equality.Semantic.DeepEqual(c, was) {
			errs = append(errs, field.Forbidden(spec, "only cpu and memory resources can be resized"))
		}
	}
	return errs
}

func removedAmounts(is, was *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(is, was corev1.ResourceList, path *field.Path) {
		for name := range was {
			if _, ok := is[name]; !ok {
				errs = append(errs, field.Forbidden(path, "requests and limits may be changed but not removed"))
				return
			}
		}
	}
	check(is.Requests, was.Requests, path.Child("requests"))
	check(is.Limits, was.Limits, path.Child("limits"))
	return errs
}

// takeBack restores the old cpu and memory. It drops claims, so that, as in kube-apiserver, a
// container with claims cannot be resized.
func takeBack(is, was *corev1.ResourceRequirements) {
	list := func(is, was corev1.ResourceList) corev1.ResourceList {
		all := corev1.ResourceList{}
		maps.Copy(all, is)
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			delete(all, name)
			if amount, ok := was[name]; ok {
				all[name] = amount
			}
		}
		return all
	}
	*is = corev1.ResourceRequirements{
		Limits:   list(is.Limits, was.Limits),
		Requests: list(is.Requests, was.Requests),
	}
}
