package podspec

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidatePod checks a pod but for what the registry checks of its metadata.
func ValidatePod(pod *corev1.Pod, opts Options) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateAnnotations(pod.Annotations, &pod.Spec, field.NewPath("metadata", "annotations"), opts)
	return append(errs, ValidateSpec(&pod.Spec, &pod.ObjectMeta, spec, opts)...)
}

// ValidateNewPod checks what matters for pods that are being created only.
func ValidateNewPod(pod *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if len(pod.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "a pod gets ephemeral containers through its subresource"))
	}
	if pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("nodeName"), "scheduling gates are closed"))
	}
	return append(errs, validateProfileAnnotations(pod.Annotations, &pod.Spec, spec)...)
}

// validateTolerationsAnnotation checks the list of tolerations that old clients left in an annotation.
func validateTolerationsAnnotation(value string, path *field.Path, opts Options) field.ErrorList {
	var tolerations []corev1.Toleration
	if err := json.Unmarshal([]byte(value), &tolerations); err != nil {
		return field.ErrorList{field.Invalid(path, value, err.Error())}
	}
	return ValidateTolerations(tolerations, path.Child(corev1.TolerationsAnnotationKey), opts)
}
