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
	errs = append(errs, ValidateSpec(&pod.Spec, &pod.ObjectMeta, spec, opts)...)
	if pod.Spec.ServiceAccountName == "" {
		errs = append(errs, forbidTokens(pod.Spec.Volumes, spec.Child("volumes"))...)
	}
	return errs
}

// forbidTokens is for pods that have no service account. Templates are not asked: their pods get the default one.
func forbidTokens(volumes []corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, volume := range volumes {
		if volume.Projected == nil {
			continue
		}
		for j, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil {
				errs = append(errs, field.Forbidden(path.Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken"), "there is no serviceAccountName"))
			}
		}
	}
	return errs
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
