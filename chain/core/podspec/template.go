package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	seccompPodAnnotation       = corev1.SeccompPodAnnotationKey
	seccompContainerAnnotation = corev1.SeccompContainerAnnotationKeyPrefix
	apparmorAnnotation         = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
)

// ValidateTemplate checks a pod template at path: its labels, annotations and spec.
func ValidateTemplate(tmpl *corev1.PodTemplateSpec, path *field.Path, opts Options) field.ErrorList {
	errs := metav1validation.ValidateLabels(tmpl.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(tmpl.Annotations, path.Child("annotations"))...)
	errs = append(errs, validateAnnotations(tmpl.Annotations, &tmpl.Spec, path.Child("annotations"), opts)...)
	errs = append(errs, ValidateSpec(&tmpl.Spec, nil, path.Child("spec"), opts)...)
	errs = append(errs, validateProfileAnnotations(tmpl.Annotations, &tmpl.Spec, path.Child("spec"))...)
	if len(tmpl.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("spec", "ephemeralContainers"), "only running pods get ephemeral containers"))
	}
	return errs
}

// validateAnnotations checks the annotations that mean something for pods.
func validateAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path, opts Options) field.ErrorList {
	var errs field.ErrorList
	if value, ok := annotations[corev1.MirrorPodAnnotationKey]; ok && spec.NodeName == "" {
		errs = append(errs, field.Invalid(path.Key(corev1.MirrorPodAnnotationKey), value, "a mirror pod has a nodeName"))
	}
	if value, ok := annotations[corev1.TolerationsAnnotationKey]; ok && value != "" {
		errs = append(errs, validateTolerationsAnnotation(value, path)...)
	}
	if !opts.badDeletionCost {
		errs = append(errs, validateDeletionCost(annotations, path)...)
	}
	errs = append(errs, validateAppArmorAnnotations(annotations, spec, path)...)
	return append(errs, validateSeccompAnnotations(annotations, path)...)
}

func validateAppArmorAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.Set[string]{}
	eachContainer(spec, func(c *corev1.Container, _ *field.Path) { names.Insert(c.Name) })
	for key, profile := range annotations {
		container, ok := strings.CutPrefix(key, apparmorAnnotation)
		if !ok {
			continue
		}
		if !names.Has(container) {
			errs = append(errs, field.Invalid(path.Key(key), container, "there is no such container"))
		}
		if profile != "" && profile != corev1.DeprecatedAppArmorBetaProfileRuntimeDefault &&
			profile != corev1.DeprecatedAppArmorBetaProfileNameUnconfined && !strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix) {
			errs = append(errs, field.Invalid(path.Key(key), profile, "is no AppArmor profile"))
		}
	}
	return errs
}

func validateSeccompAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for key, profile := range annotations {
		if key != seccompPodAnnotation && !strings.HasPrefix(key, seccompContainerAnnotation) {
			continue
		}
		switch profile {
		case corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault, corev1.SeccompProfileNameUnconfined:
			continue
		}
		if file, ok := strings.CutPrefix(profile, corev1.SeccompLocalhostProfileNamePrefix); ok {
			errs = append(errs, validateDescendingPath(file, path.Key(key))...)
			continue
		}
		errs = append(errs, field.Invalid(path.Key(key), profile, "is no seccomp profile"))
	}
	return errs
}

// validateProfileAnnotations checks that the old annotations about seccomp do not contradict the fields which replaced them.
func validateProfileAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	differ := func(key string, profile *corev1.SeccompProfile, at *field.Path) {
		if value, ok := annotations[key]; ok && profile != nil && seccompAnnotation(profile) != value {
			errs = append(errs, field.Forbidden(at.Child("securityContext", "seccompProfile"), "contradicts the annotation "+key))
		}
	}
	if sc := spec.SecurityContext; sc != nil {
		differ(seccompPodAnnotation, sc.SeccompProfile, path)
	}
	eachContainer(spec, func(c *corev1.Container, p *field.Path) {
		if c.SecurityContext != nil {
			differ(seccompContainerAnnotation+c.Name, c.SecurityContext.SeccompProfile, below(path, p))
		}
	})
	return errs
}

func seccompAnnotation(p *corev1.SeccompProfile) string {
	switch p.Type {
	case corev1.SeccompProfileTypeUnconfined:
		return corev1.SeccompProfileNameUnconfined
	case corev1.SeccompProfileTypeRuntimeDefault:
		return corev1.SeccompProfileRuntimeDefault
	}
	if p.LocalhostProfile == nil {
		return ""
	}
	return corev1.SeccompLocalhostProfileNamePrefix + *p.LocalhostProfile
}
