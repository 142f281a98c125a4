package workloads

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateTemplateLabels wants a workload's selector to match the pods that the template at path makes.
func ValidateTemplateLabels(selector labels.Selector, tmpl *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	if selector.Matches(labels.Set(tmpl.Labels)) {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("metadata", "labels"), tmpl.Labels, "are not what the selector selects")}
}

// ValidateEverlasting wants the pods of the template at path to run until they are deleted.
func ValidateEverlasting(tmpl *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if policy := tmpl.Spec.RestartPolicy; policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), policy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if tmpl.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"), "pods that are replaced when they end have no deadline"))
	}
	return errs
}

// PodNameWarnings are about names of workloads that make poor names of pods.
func PodNameWarnings(name string) []string {
	if len(validation.IsDNS1123Label(name)) == 0 {
		return nil
	}
	return []string{"metadata.name: the names and hostnames of pods are made of it; a DNS label avoids surprises"}
}

// Counter is a number of a workload's status.
type Counter struct {
	Field string
	Value int64
}

// ValidateCounters wants numbers below path to be 0 at least.
func ValidateCounters(path *field.Path, counters ...Counter) field.ErrorList {
	var errs field.ErrorList
	for _, c := range counters {
		errs = append(errs, apivalidation.ValidateNonnegativeField(c.Value, path.Child(c.Field))...)
	}
	return errs
}

// ValidateAtMost wants numbers below path not to exceed limit.
func ValidateAtMost(path *field.Path, limit Counter, counters ...Counter) field.ErrorList {
	var errs field.ErrorList
	for _, c := range counters {
		if c.Value > limit.Value {
			errs = append(errs, field.Invalid(path.Child(c.Field), c.Value, "cannot be more than "+limit.Field))
		}
	}
	return errs
}

// ReplicaCounts is what replica sets and replication controllers have in their status.
type ReplicaCounts struct {
	Replicas, FullyLabeled, Ready, Available int32
	ObservedGeneration                       int64
}

// ValidateReplicaCounts checks a status at path.
func ValidateReplicaCounts(c ReplicaCounts, path *field.Path) field.ErrorList {
	all := Counter{"replicas", int64(c.Replicas)}
	labeled := Counter{"fullyLabeledReplicas", int64(c.FullyLabeled)}
	ready := Counter{"readyReplicas", int64(c.Ready)}
	available := Counter{"availableReplicas", int64(c.Available)}
	errs := ValidateCounters(path, all, labeled, ready, available, Counter{"observedGeneration", c.ObservedGeneration})
	errs = append(errs, ValidateAtMost(path, all, labeled, ready, available)...)
	return append(errs, ValidateAtMost(path, ready, available)...)
}

// ValidateCollisionCount checks the number of hash collisions at path, which only grows.
func ValidateCollisionCount(count, old *int32, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if count != nil {
		errs = apivalidation.ValidateNonnegativeField(int64(*count), path)
	}
	if old != nil && (count == nil || *count < *old) {
		errs = append(errs, field.Invalid(path, count, "cannot become less"))
	}
	return errs
}
