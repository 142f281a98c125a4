package core

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/podspec"
)

// keepAllBut restores the old pod but for what change takes over from the new one.
func keepAllBut(p, old *corev1.Pod, change func(spec, wanted *corev1.PodSpec)) {
	wanted, managed, version, uid := p.Spec, p.ManagedFields, p.ResourceVersion, p.UID
	old.DeepCopyInto(p)
	p.ManagedFields, p.ResourceVersion, p.UID = managed, version, uid
	change(&p.Spec, &wanted)
	if !equality.Semantic.DeepEqual(p.Spec, old.Spec) {
		p.Generation = old.Generation + 1
	}
}

func prepareEphemeralContainers(_ context.Context, p, old *corev1.Pod) {
	keepAllBut(p, old, func(spec, wanted *corev1.PodSpec) {
		spec.EphemeralContainers = wanted.EphemeralContainers
		podspec.DropDisabledSpecFields(spec, &old.Spec)
	})
}

// validateEphemeralContainers lets containers be added for debugging, and stay (KEP-277).
func validateEphemeralContainers(_ context.Context, p, old *corev1.Pod) field.ErrorList {
	errs := podspec.ValidatePod(p, podspec.PodOptionsFor(p, old))
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return append(errs, field.Forbidden(field.NewPath(""), "a static pod takes no ephemeral containers"))
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
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("the ephemeral container %q cannot be removed", was.Name)))
		case !equality.Semantic.DeepEqual(is, was):
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("the ephemeral container %q cannot be changed", was.Name)))
		}
	}
	return errs
}

func prepareResize(_ context.Context, p, old *corev1.Pod) {
	keepAllBut(p, old, func(spec, wanted *corev1.PodSpec) {
		for _, lists := range [][2][]corev1.Container{{spec.Containers, wanted.Containers}, {spec.InitContainers, wanted.InitContainers}} {
			byName := map[string]*corev1.Container{}
			for i := range lists[1] {
				byName[lists[1][i].Name] = &lists[1][i]
			}
			for i := range lists[0] {
				if c, ok := byName[lists[0][i].Name]; ok {
					lists[0][i].Resources = c.Resources
					lists[0][i].ResizePolicy = c.ResizePolicy
				}
			}
		}
		if spec.Resources != nil && wanted.Resources != nil {
			spec.Resources = wanted.Resources
		}
	})
}

// validateResize lets the cpu and memory of containers change while they run (KEP-1287).
func validateResize(_ context.Context, p, old *corev1.Pod) field.ErrorList {
	errs := podspec.ValidatePod(p, podspec.PodOptionsFor(p, old))
	spec := field.NewPath("spec")
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return append(errs, field.Forbidden(field.NewPath(""), "a static pod cannot be resized"))
	}
	if old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows {
		return append(errs, field.Forbidden(field.NewPath(""), "a windows pod cannot be resized"))
	}
	if podQOS(p) != old.Status.QOSClass && old.Status.QOSClass != "" {
		errs = append(errs, field.Invalid(spec, podQOS(p), "the quality of service, "+string(old.Status.QOSClass)+", would change"))
	}
	if !nodeResizes(old) {
		errs = append(errs, field.Forbidden(spec, "the node that runs the pod does not know how to resize it"))
	}
	rest := p.Spec.DeepCopy()
	for i := range rest.Containers {
		at := spec.Child("containers").Index(i).Child("resources")
		errs = append(errs, takeBackResize(&rest.Containers[i].Resources, &old.Spec.Containers[i].Resources, at)...)
	}
	for i := range rest.InitContainers {
		c := &rest.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			at := spec.Child("initContainers").Index(i).Child("resources")
			errs = append(errs, takeBackResize(&c.Resources, &old.Spec.InitContainers[i].Resources, at)...)
		}
	}
	if rest.Resources != nil && old.Spec.Resources != nil {
		errs = append(errs, takeBackResize(rest.Resources, old.Spec.Resources, spec.Child("resources"))...)
	}
	if !equality.Semantic.DeepEqual(rest, &old.Spec) {
		errs = append(errs, field.Forbidden(spec, "only cpu and memory can be resized"))
	}
	return errs
}

// nodeResizes says whether the node can resize pods: kubelets that can report the resources of running containers.
func nodeResizes(p *corev1.Pod) bool {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running != nil {
			return c.Resources != nil
		}
	}
	return true
}

// takeBackResize gives cpu and memory their old amounts, so that the rest can be compared, and checks that none was taken away.
func takeBackResize(is, was *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	restore := func(is *corev1.ResourceList, was corev1.ResourceList, path *field.Path) {
		removed := false
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			_, now := (*is)[name]
			amount, before := was[name]
			removed = removed || before && !now
			switch {
			case before:
				if *is == nil {
					*is = corev1.ResourceList{}
				}
				(*is)[name] = amount
			case now:
				delete(*is, name)
			}
		}
		if removed {
			errs = append(errs, field.Forbidden(path, "an amount can change but not go away"))
		}
	}
	restore(&is.Limits, was.Limits, path.Child("limits"))
	restore(&is.Requests, was.Requests, path.Child("requests"))
	return errs
}
