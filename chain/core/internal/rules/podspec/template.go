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

// ValidateTemplate validates the labels, annotations and spec of the pod template at path.
func ValidateTemplate(
	tmpl *corev1.PodTemplateSpec, path *field.Path, opts Options,
) field.ErrorList {
	errs := ValidateTemplateMeta(tmpl, path, opts)
	errs = append(errs, ValidateSpec(&tmpl.Spec, nil, path.Child("spec"), opts)...)
	errs = append(errs, validateProfileAnnotations(tmpl.Annotations,
		&tmpl.Spec, path.Child("spec"))...)
	if len(tmpl.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("spec", "ephemeralContainers"),
			"ephemeral containers not allowed in pod template"))
	}
	return errs
}

// ValidateTemplateMeta validates the labels and annotations of the pod template at path.
func ValidateTemplateMeta(
	tmpl *corev1.PodTemplateSpec, path *field.Path, opts Options,
) field.ErrorList {
	errs := metav1validation.ValidateLabels(tmpl.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(tmpl.Annotations,
		path.Child("annotations"))...)
	return append(errs, validateAnnotations(tmpl.Annotations, &tmpl.Spec,
		path.Child("annotations"), opts)...)
}

// validateAnnotations validates the annotations that have a meaning for pods.
func validateAnnotations(
	annotations map[string]string, spec *corev1.PodSpec, path *field.Path, opts Options,
) field.ErrorList {
	var errs field.ErrorList
	if value, ok := annotations[corev1.MirrorPodAnnotationKey]; ok && spec.NodeName == "" {
		errs = append(errs, field.Invalid(path.Key(corev1.MirrorPodAnnotationKey), value,
			"must have spec.nodeName set for mirror pods"))
	}
	if value, ok := annotations[corev1.TolerationsAnnotationKey]; ok && value != "" {
		errs = append(errs, validateTolerationsAnnotation(value, path, opts)...)
	}
	if !opts.badDeletionCost {
		errs = append(errs, validateDeletionCost(annotations, path)...)
	}
	errs = append(errs, validateAppArmorAnnotations(annotations, spec, path)...)
	return append(errs, validateSeccompAnnotations(annotations, path)...)
}

func validateAppArmorAnnotations(
	annotations map[string]string, spec *corev1.PodSpec, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	names := sets.Set[string]{}
	eachContainer(spec, func(c *corev1.Container, _ *field.Path) { names.Insert(c.Name) })
	for key, profile := range annotations {
		container, ok := strings.CutPrefix(key, apparmorAnnotation)
		if !ok {
			continue
		}
		if !names.Has(container) {
			errs = append(errs, field.Invalid(path.Key(key), container, "container not found"))
		}
		if profile != "" && profile != corev1.DeprecatedAppArmorBetaProfileRuntimeDefault &&
			profile != corev1.DeprecatedAppArmorBetaProfileNameUnconfined &&
			!strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix) {
			errs = append(errs, field.Invalid(path.Key(key), profile, "must be a valid AppArmor profile"))
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
		case corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault,
			corev1.SeccompProfileNameUnconfined:
			continue
		}
		// Not path.Key: kube-apiserver treats the annotation as a field.
		at := path.Child(key)
		if file, ok := strings.CutPrefix(profile, corev1.SeccompLocalhostProfileNamePrefix); ok {
			errs = append(errs, validateDescendingPath(file, at)...)
			continue
		}
		errs = append(errs, field.Invalid(at, profile, "must be a valid seccomp profile"))
	}
	return errs
}

// validateProfileAnnotations requires the old seccomp and AppArmor annotations not to contradict
// the fields that replaced them.
func validateProfileAnnotations(
	annotations map[string]string, spec *corev1.PodSpec, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	security := func(at *field.Path) *field.Path { return at.Child("securityContext") }
	if sc := spec.SecurityContext; sc != nil {
		errs = append(errs, compareSeccomp(annotations, seccompPodAnnotation,
			sc.SeccompProfile, security(path))...)
	}
	eachContainer(spec, func(c *corev1.Container, p *field.Path) {
		if c.SecurityContext != nil {
			errs = append(errs, compareSeccomp(annotations, seccompContainerAnnotation+c.Name,
				c.SecurityContext.SeccompProfile, security(below(path, p)))...)
		}
	})
	if spec.OS != nil && spec.OS.Name == corev1.Windows {
		return errs
	}
	eachContainer(spec, func(c *corev1.Container, p *field.Path) {
		errs = append(errs, compareAppArmor(annotations, apparmorAnnotation+c.Name,
			AppArmorProfile(spec, c), security(below(path, p)))...)
	})
	return errs
}

// compareSeccomp compares an annotation, if present, with the profile in the security context at
// path.
func compareSeccomp(
	annotations map[string]string, key string, profile *corev1.SeccompProfile, path *field.Path,
) field.ErrorList {
	value, ok := annotations[key]
	if !ok || profile == nil {
		return nil
	}
	path = path.Child("seccompProfile")
	same := true
	switch profile.Type {
	case corev1.SeccompProfileTypeUnconfined:
		same = value == corev1.SeccompProfileNameUnconfined
	case corev1.SeccompProfileTypeRuntimeDefault:
		same = value == corev1.SeccompProfileRuntimeDefault ||
			value == corev1.DeprecatedSeccompProfileDockerDefault
	case corev1.SeccompProfileTypeLocalhost:
		return compareLocalhost(value, corev1.SeccompLocalhostProfileNamePrefix,
			profile.LocalhostProfile, path)
	}
	return contradiction(!same, path.Child("type"))
}

// compareAppArmor compares an annotation, if present, with the profile of the container whose
// security context is at path.
func compareAppArmor(
	annotations map[string]string, key string, profile *corev1.AppArmorProfile, path *field.Path,
) field.ErrorList {
	value, ok := annotations[key]
	if !ok || profile == nil {
		return nil
	}
	path = path.Child("appArmorProfile")
	same := true
	switch profile.Type {
	case corev1.AppArmorProfileTypeUnconfined:
		same = value == corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	case corev1.AppArmorProfileTypeRuntimeDefault:
		same = value == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case corev1.AppArmorProfileTypeLocalhost:
		return compareLocalhost(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix,
			profile.LocalhostProfile, path)
	}
	return contradiction(!same, path.Child("type"))
}

func compareLocalhost(
	annotation, prefix string, profile *string, path *field.Path,
) field.ErrorList {
	name, ok := strings.CutPrefix(annotation, prefix)
	if !ok {
		return contradiction(true, path.Child("type"))
	}
	return contradiction(profile == nil || *profile != name, path.Child("localhostProfile"))
}

func contradiction(found bool, path *field.Path) field.ErrorList {
	if !found {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, "must match the annotation")}
}

// AppArmorProfile returns the profile of a container, which defaults to the profile of the pod.
func AppArmorProfile(spec *corev1.PodSpec, c *corev1.Container) *corev1.AppArmorProfile {
	if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return c.SecurityContext.AppArmorProfile
	}
	if spec.SecurityContext != nil {
		return spec.SecurityContext.AppArmorProfile
	}
	return nil
}
