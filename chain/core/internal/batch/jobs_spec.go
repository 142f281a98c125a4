package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/core/internal/rules/workloads"
	"github.com/kinproc/kinproc/chain/features"
)

const (
	// maxIndexed is the maximum parallelism, and the maximum number of failed indexes, of an
	// indexed job. It limits the size of the status.
	maxIndexed = 100_000
	// manyCompletions is the number of completions above which maxForManyCompletions limits
	// parallelism and failed indexes, if backoffLimitPerIndex is set.
	manyCompletions       = 100_000
	maxForManyCompletions = 10_000
	maxManagedBy          = 63
)

// validateJob validates a job. old is nil on create.
func validateJob(j, old *batchv1.Job) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if old == nil {
		errs = validateGenerated(j, path)
	}

	opts, selectorOpts := podspec.OptionsFor(&j.Spec.Template, nil),
		metav1validation.LabelSelectorValidationOptions{}
	if old != nil {
		opts = podspec.OptionsFor(&j.Spec.Template, &old.Spec.Template)
		selectorOpts.AllowInvalidLabelValueInSelector =
			metav1validation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector)
	}
	errs = append(errs, validateJobSpec(&j.Spec, path, opts)...)
	if j.Spec.Selector == nil {
		errs = append(errs, field.Required(path.Child("selector"),
			"must specify which pods belong to the job"))
	} else {
		errs = append(errs, metav1validation.ValidateLabelSelector(j.Spec.Selector, selectorOpts,
			path.Child("selector"))...)
	}
	if selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil {
		errs = append(errs, workloads.ValidateTemplateLabels(selector, &j.Spec.Template,
			path.Child("template"))...)
	}

	if n := ptr.Deref(j.Spec.Completions, 0); isIndexed(&j.Spec) && n > 0 {
		// The controller derives the pods' hostnames from the name of the job and the index.
		last := fmt.Sprintf("%s-%d", j.Name, n-1)
		if len(validation.IsDNS1123Label(last)) > 0 {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), j.Name,
				"results in the pod hostname "+last+", which is not a valid DNS label"))
		}
	}
	return errs
}

// validateGenerated requires the selector and labels that prepareJob generates. A change of them is
// refused as the change of an immutable field.
func validateGenerated(j *batchv1.Job, path *field.Path) field.ErrorList {
	if ptr.Deref(j.Spec.ManualSelector, false) || j.Spec.Selector == nil {
		return nil
	}
	var errs field.ErrorList
	if j.UID == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "uid"),
			"must be set, because the generated selector matches it"))
	}
	wanted := podLabels(j)
	at := path.Child("template", "metadata", "labels")
	for label, value := range wanted {
		if have, ok := j.Spec.Template.Labels[label]; !ok {
			errs = append(errs, field.Required(at.Key(label), fmt.Sprintf("must be %q", value)))
		} else if have != value {
			errs = append(errs, field.Invalid(at.Key(label), have, fmt.Sprintf("must be %q", value)))
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil &&
		!selector.Matches(labels.Set(wanted)) {
		errs = append(errs, field.Invalid(path.Child("selector"), j.Spec.Selector,
			"must be the generated selector, unless manualSelector is set"))
	}
	return errs
}

// validateJobSpec validates the spec of a job, or of a job template, except for the selector.
func validateJobSpec(
	spec *batchv1.JobSpec, path *field.Path, opts podspec.Options,
) field.ErrorList {
	errs := workloads.ValidateCounters(path,
		workloads.Counter{Field: "parallelism", Value: int64(ptr.Deref(spec.Parallelism, 0))},
		workloads.Counter{Field: "completions", Value: int64(ptr.Deref(spec.Completions, 0))},
		workloads.Counter{
			Field: "activeDeadlineSeconds",
			Value: ptr.Deref(spec.ActiveDeadlineSeconds, 0),
		},
		workloads.Counter{Field: "backoffLimit", Value: int64(ptr.Deref(spec.BackoffLimit, 0))},
		workloads.Counter{
			Field: "ttlSecondsAfterFinished",
			Value: int64(ptr.Deref(spec.TTLSecondsAfterFinished, 0)),
		},
		workloads.Counter{
			Field: "backoffLimitPerIndex",
			Value: int64(ptr.Deref(spec.BackoffLimitPerIndex, 0)),
		},
		workloads.Counter{Field: "maxFailedIndexes", Value: int64(ptr.Deref(spec.MaxFailedIndexes, 0))})
	if spec.MaxFailedIndexes != nil && spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"),
			"must be set when maxFailedIndexes is set"))
	}
	if by := spec.ManagedBy; by != nil {
		errs = append(errs, validation.IsDomainPrefixedPath(path.Child("managedBy"), *by)...)
		if len(*by) > maxManagedBy {
			errs = append(errs, field.TooLong(path.Child("managedBy"), *by, maxManagedBy))
		}
	}

	switch mode := ptr.Deref(spec.CompletionMode, batchv1.NonIndexedCompletion); mode {
	case batchv1.IndexedCompletion:
		errs = append(errs, validateIndexed(spec, path)...)
	case batchv1.NonIndexedCompletion:
		if spec.BackoffLimitPerIndex != nil {
			errs = append(errs, field.Invalid(path.Child("backoffLimitPerIndex"), *spec.BackoffLimitPerIndex,
				"requires indexed completion mode"))
		}
		if spec.MaxFailedIndexes != nil {
			errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *spec.MaxFailedIndexes,
				"requires indexed completion mode"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("completionMode"), mode,
			[]batchv1.CompletionMode{batchv1.NonIndexedCompletion, batchv1.IndexedCompletion}))
	}

	if spec.PodFailurePolicy != nil {
		errs = append(errs, validateFailurePolicy(spec, path.Child("podFailurePolicy", "rules"))...)
	}
	if spec.SuccessPolicy != nil {
		if isIndexed(spec) {
			errs = append(errs, validateSuccessPolicy(spec, path.Child("successPolicy", "rules"))...)
		} else {
			errs = append(errs, field.Invalid(path.Child("successPolicy"), spec.SuccessPolicy,
				"requires indexed completion mode"))
		}
	}
	errs = append(errs, validateReplacement(spec, path.Child("podReplacementPolicy"))...)

	errs = append(errs, podspec.ValidateTemplate(&spec.Template, path.Child("template"), opts)...)
	ending := []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}
	switch policy, at := spec.Template.Spec.RestartPolicy, path.Child("template",
		"spec", "restartPolicy"); policy {
	case corev1.RestartPolicyNever:
	case corev1.RestartPolicyOnFailure:
		if spec.PodFailurePolicy != nil {
			errs = append(errs, field.Invalid(at, policy, "must be Never when podFailurePolicy is set"))
		}
	case corev1.RestartPolicyAlways, "":
		// Always is the default for other pods: the client set nothing, or a wrong value.
		errs = append(errs, field.Required(at, fmt.Sprintf("must be one of %v", ending)))
	default:
		errs = append(errs, field.NotSupported(at, policy, ending))
	}
	return errs
}

func isIndexed(spec *batchv1.JobSpec) bool {
	return ptr.Deref(spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

func validateIndexed(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	atMost := func(name string, value *int32, limit int32, why string) {
		if value != nil && *value > limit {
			errs = append(errs, field.Invalid(path.Child(name), *value,
				fmt.Sprintf("must be less than or equal to %d, because %s", limit, why)))
		}
	}
	if spec.Completions == nil {
		errs = append(errs, field.Required(path.Child("completions"), "must be set for indexed jobs"))
	} else {
		atMost("maxFailedIndexes", spec.MaxFailedIndexes, *spec.Completions,
			"that is the number of completions")
	}
	atMost("parallelism", spec.Parallelism, maxIndexed, "the job is indexed")
	atMost("maxFailedIndexes", spec.MaxFailedIndexes, maxIndexed, "the job is indexed")
	if ptr.Deref(spec.Completions, 0) > manyCompletions && spec.BackoffLimitPerIndex != nil {
		why := fmt.Sprintf("there are more than %d completions and backoffLimitPerIndex is set",
			manyCompletions)
		if spec.MaxFailedIndexes == nil {
			errs = append(errs, field.Required(path.Child("maxFailedIndexes"), why))
		}
		atMost("parallelism", spec.Parallelism, maxForManyCompletions, why)
		atMost("maxFailedIndexes", spec.MaxFailedIndexes, maxForManyCompletions, why)
	}
	return errs
}

func validateReplacement(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	supported := []batchv1.PodReplacementPolicy{batchv1.Failed, batchv1.TerminatingOrFailed}
	if spec.PodFailurePolicy != nil {
		supported = supported[:1]
	}
	if p := spec.PodReplacementPolicy; p != nil && !slices.Contains(supported, *p) {
		return field.ErrorList{field.NotSupported(path, *p, supported)}
	}
	return nil
}

// validateJobChange rejects changes to the fields that define the pods and how they are counted.
func validateJobChange(
	spec *batchv1.JobSpec, oldJob *batchv1.Job, path *field.Path,
) field.ErrorList {
	old := &oldJob.Spec
	var errs field.ErrorList
	switch {
	case !isIndexed(spec):
		errs = append(errs, apivalidation.ValidateImmutableField(spec.Completions, old.Completions,
			path.Child("completions"))...)
	case spec.Completions == nil || equality.Semantic.DeepEqual(spec.Completions, old.Completions):
	case *spec.Completions != ptr.Deref(spec.Parallelism, 0):
		errs = append(errs, field.Invalid(path.Child("completions"), *spec.Completions,
			"may only be changed together with parallelism, to the same value"))
	}
	unchanged := func(name string, value, old any) {
		errs = append(errs, apivalidation.ValidateImmutableField(value, old, path.Child(name))...)
	}
	unchanged("selector", spec.Selector, old.Selector)
	errs = append(errs, validateTemplateChange(&spec.Template, oldJob, path.Child("template"))...)
	unchanged("completionMode", spec.CompletionMode, old.CompletionMode)
	unchanged("podFailurePolicy", spec.PodFailurePolicy, old.PodFailurePolicy)
	unchanged("backoffLimitPerIndex", spec.BackoffLimitPerIndex, old.BackoffLimitPerIndex)
	unchanged("managedBy", spec.ManagedBy, old.ManagedBy)
	unchanged("successPolicy", spec.SuccessPolicy, old.SuccessPolicy)
	return errs
}

// validateTemplateChange rejects changes to the template, except for those that [mayChange] allows.
func validateTemplateChange(
	tmpl *corev1.PodTemplateSpec, old *batchv1.Job, path *field.Path,
) field.ErrorList {
	directives, resources := mayChange(old, features.Enabled)
	keep := old.Spec.Template.DeepCopy()
	if directives {
		keep.Labels, keep.Annotations = tmpl.Labels, tmpl.Annotations
		keepScheduling(&keep.Spec, &tmpl.Spec)
	}
	if !resources {
		return apivalidation.ValidateImmutableField(tmpl, keep, path)
	}
	keepResources(keep.Spec.Containers, tmpl.Spec.Containers)
	keepResources(keep.Spec.InitContainers, tmpl.Spec.InitContainers)
	return apivalidation.ValidateImmutableField(tmpl.Spec, keep.Spec, path.Child("spec"))
}

// mayChange reports whether the scheduling directives and metadata of the template may change, and
// the resources: while the job is suspended and has no pods (KEP-2926, KEP-5440). Without their
// features, directives may change only before the first start, and resources never.
func mayChange(
	old *batchv1.Job, on func(featuregate.Feature) bool,
) (directives, resources bool) {
	suspended, started := ptr.Deref(old.Spec.Suspend, false), old.Status.StartTime != nil
	idle := suspended && old.Status.Active == 0 && (!started || isTrue(old, batchv1.JobSuspended))
	directives = suspended && !started
	if on(features.MutableSchedulingDirectivesForSuspendedJobs) {
		directives = idle
	}
	return directives, idle && on(features.MutablePodResourcesForSuspendedJobs)
}

// keepScheduling copies the scheduling directives of spec to keep.
func keepScheduling(keep, spec *corev1.PodSpec) {
	keep.NodeSelector, keep.Tolerations, keep.SchedulingGates = spec.NodeSelector, spec.Tolerations,
		spec.SchedulingGates
	switch affinity := spec.Affinity; {
	case affinity != nil && keep.Affinity == nil:
		keep.Affinity = &corev1.Affinity{NodeAffinity: affinity.NodeAffinity}
	case affinity != nil:
		keep.Affinity.NodeAffinity = affinity.NodeAffinity
	case keep.Affinity != nil:
		keep.Affinity.NodeAffinity = nil
		if *keep.Affinity == (corev1.Affinity{}) {
			keep.Affinity = nil
		}
	}
}

func keepResources(keep, containers []corev1.Container) {
	if len(keep) != len(containers) {
		return
	}
	for i := range keep {
		if keep[i].Name == containers[i].Name {
			keep[i].Resources = containers[i].Resources
		}
	}
}
