package podspec

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidatePod validates a pod, except for the metadata that the registry validates.
func ValidatePod(pod *corev1.Pod, opts Options) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateAnnotations(pod.Annotations, &pod.Spec,
		field.NewPath("metadata", "annotations"), opts)
	errs = append(errs, ValidateSpec(&pod.Spec, &pod.ObjectMeta, spec, opts)...)
	if pod.Spec.ServiceAccountName == "" {
		errs = append(errs, forbidTokens(pod.Spec.Volumes, spec.Child("volumes"))...)
	}
	return errs
}

// forbidTokens rejects service account tokens in pods without a service account. It does not apply
// to templates, whose pods get the default service account.
func forbidTokens(volumes []corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, volume := range volumes {
		if volume.Projected == nil {
			continue
		}
		for j, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil {
				errs = append(errs, field.Forbidden(path.Index(i).Child("projected", "sources").Index(j).
					Child("serviceAccountToken"), "must not be specified when serviceAccountName is not set"))
			}
		}
	}
	return errs
}

// ValidateNewPod checks rules that apply only when a pod is created.
func ValidateNewPod(pod *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if len(pod.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"),
			"may only be set through the ephemeralcontainers subresource"))
	}
	if pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("nodeName"),
			"cannot be set until all schedulingGates have been cleared"))
	}
	return append(errs, validateProfileAnnotations(pod.Annotations, &pod.Spec, spec)...)
}

// validateTolerationsAnnotation validates the tolerations that old clients left in an annotation.
func validateTolerationsAnnotation(value string, path *field.Path, opts Options) field.ErrorList {
	var tolerations []corev1.Toleration
	if err := json.Unmarshal([]byte(value), &tolerations); err != nil {
		return field.ErrorList{field.Invalid(path, value, err.Error())}
	}
	return ValidateTolerations(tolerations, path.Child(corev1.TolerationsAnnotationKey), opts)
}
