package workloads

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateTemplateLabels requires a workload's selector to match the labels of the template at
// path.
func ValidateTemplateLabels(
	selector labels.Selector, tmpl *corev1.PodTemplateSpec, path *field.Path,
) field.ErrorList {
	if selector.Matches(labels.Set(tmpl.Labels)) {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("metadata", "labels"), tmpl.Labels,
		"`selector` does not match template `labels`")}
}

// ValidateEverlasting requires the pods of the template at path to run until they are deleted.
func ValidateEverlasting(tmpl *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if policy := tmpl.Spec.RestartPolicy; policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), policy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if tmpl.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"),
			"may not be set, because the pods are replaced when they end"))
	}
	return errs
}

// PodNameWarnings returns warnings about workload names that do not suit pod names and hostnames.
func PodNameWarnings(name string) []string {
	if len(validation.IsDNS1123Label(name)) == 0 {
		return nil
	}
	return []string{
		"metadata.name: pod names and hostnames are derived from the name; a DNS label is recommended",
	}
}

// Counter is a number in a workload's spec or status.
type Counter struct {
	Field string
	Value int64
}

// ValidateCounters requires the numbers below path to be non-negative.
func ValidateCounters(path *field.Path, counters ...Counter) field.ErrorList {
	var errs field.ErrorList
	for _, c := range counters {
		errs = append(errs, apivalidation.ValidateNonnegativeField(c.Value, path.Child(c.Field))...)
	}
	return errs
}

// ValidateAtMost requires the numbers below path to be at most limit.
func ValidateAtMost(path *field.Path, limit Counter, counters ...Counter) field.ErrorList {
	var errs field.ErrorList
	for _, c := range counters {
		if c.Value > limit.Value {
			errs = append(errs, field.Invalid(path.Child(c.Field), c.Value,
				"cannot be greater than "+limit.Field))
		}
	}
	return errs
}

// ReplicaCounts holds the numbers in the status of replica sets and replication controllers.
type ReplicaCounts struct {
	Replicas, FullyLabeled, Ready, Available int32
	ObservedGeneration                       int64
}

// ValidateReplicaCounts validates the numbers of the status at path.
func ValidateReplicaCounts(c ReplicaCounts, path *field.Path) field.ErrorList {
	all := Counter{"replicas", int64(c.Replicas)}
	labeled := Counter{"fullyLabeledReplicas", int64(c.FullyLabeled)}
	ready := Counter{"readyReplicas", int64(c.Ready)}
	available := Counter{"availableReplicas", int64(c.Available)}
	errs := ValidateCounters(path, all, labeled, ready, available,
		Counter{"observedGeneration", c.ObservedGeneration})
	errs = append(errs, ValidateAtMost(path, all, labeled, ready, available)...)
	return append(errs, ValidateAtMost(path, ready, available)...)
}

// ValidateCollisionCount validates the number of hash collisions at path, which must not decrease.
func ValidateCollisionCount(count, old *int32, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if count != nil {
		errs = apivalidation.ValidateNonnegativeField(int64(*count), path)
	}
	if old != nil && (count == nil || *count < *old) {
		errs = append(errs, field.Invalid(path, count, "must not decrease"))
	}
	return errs
}
