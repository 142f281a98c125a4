package batch

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/core/internal/rules/workloads"
	"github.com/kinproc/kinproc/chain/kind"
)

// Pod labels from before the prefixed ones. They are still set.
const (
	legacyControllerLabel = "controller-uid"
	legacyNameLabel       = "job-name"
)

// Jobs declares jobs.
func Jobs() *kind.Kind[*batchv1.Job] {
	path := field.NewPath("spec")
	return &kind.Kind[*batchv1.Job]{
		Plural:        "jobs",
		Categories:    []string{"all"},
		Default:       defaultJob,
		PrepareCreate: prepareJob,
		PrepareUpdate: func(_ context.Context, j, old *batchv1.Job) {
			if old.Spec.Scheduling == nil {
				j.Spec.Scheduling = nil
			}
			podspec.DropDisabledFields(&j.Spec.Template, &old.Spec.Template)
		},
		Validate: func(_ context.Context, j *batchv1.Job) field.ErrorList {
			return validateJob(j, nil)
		},
		ValidateUpdate: func(_ context.Context, j, old *batchv1.Job) field.ErrorList {
			return append(validateJob(j, old), validateJobChange(&j.Spec, old, path)...)
		},
		Table: kind.Table[*batchv1.Job]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Status", Description: "State of the job."},
				{Name: "Completions", Description: "Succeeded pods and pods that have to succeed."},
				{Name: "Duration", Description: "Time from the start to completion, or until now."},
				kind.AgeColumn(),
				{Name: "Containers", Priority: 1, Description: "Names of the template's containers."},
				{Name: "Images", Priority: 1, Description: "Images of the template's containers."},
				{Name: "Selector", Priority: 1, Description: "Labels of the pods that belong to the job."},
			},
			Row: func(j *batchv1.Job) []any {
				names, images := podspec.ContainerCells(&j.Spec.Template.Spec)
				return []any{
					j.Name, statusCell(j), completionsCell(j), durationCell(j), kind.Age(j), names, images,
					metav1.FormatLabelSelector(j.Spec.Selector),
				}
			},
		},
		Warnings: func(_ context.Context, j, old *batchv1.Job) []string {
			if old == nil {
				return append(workloads.PodNameWarnings(j.Name), jobWarnings(path, &j.Spec, nil)...)
			}
			if j.Generation == old.Generation {
				return nil
			}
			return jobWarnings(path, &j.Spec, &old.Spec.Template)
		},
		Status: &kind.Status[*batchv1.Job]{
			Validate: func(_ context.Context, j, old *batchv1.Job) field.ErrorList {
				return validateJobStatus(j, old)
			},
		},
		Generation: true,
		Fields: map[string]func(*batchv1.Job) string{
			"status.successful": func(j *batchv1.Job) string {
				return strconv.Itoa(int(j.Status.Succeeded))
			},
		},
		Wrap: func(s *kind.Storage) rest.Storage { return jobStorage{s} },
		Quirks: kind.Quirks{
			NameOnUpdate: true,
			// This default dates from before garbage collection. Deletions that rely on it get a
			// warning.
			DefaultDeletion: func(context.Context) rest.GarbageCollectionPolicy {
				return rest.OrphanDependents
			},
		},
	}
}

// jobStorage warns clients that delete jobs without saying what happens to the pods.
type jobStorage struct{ *kind.Storage }

func (s jobStorage) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc,
	options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	warnOfOrphans(ctx, options)
	return s.Storage.Delete(ctx, name, validate, options)
}

func (s jobStorage) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc,
	options *metav1.DeleteOptions, list *metainternal.ListOptions) (runtime.Object, error) {
	warnOfOrphans(ctx, options)
	return s.Storage.DeleteCollection(ctx, validate, options, list)
}

func warnOfOrphans(ctx context.Context, options *metav1.DeleteOptions) {
	// OrphanDependents is deprecated, but clients may still send it.
	if options != nil && options.PropagationPolicy == nil && options.OrphanDependents == nil {
		warning.AddWarning(ctx, "", "the job's pods are not deleted by default; set propagationPolicy "+
			"to Background or Foreground to delete them, or to Orphan to suppress this warning")
	}
}

func defaultJob(j *batchv1.Job) {
	podspec.SetDefaults(&j.Spec.Template.Spec)
	if len(j.Labels) == 0 && len(j.Spec.Template.Labels) > 0 {
		// Share the map, as in kube-apiserver: the labels that prepareJob adds to the template
		// appear on the job too.
		j.Labels = j.Spec.Template.Labels
	}

	spec := &j.Spec
	// A job with neither field runs one pod. With parallelism only, completions stays unset, and
	// any number of pods may succeed.
	if spec.Completions == nil && spec.Parallelism == nil {
		spec.Completions = new(int32(1))
	}
	defaultTo(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		defaultTo(&spec.BackoffLimit, math.MaxInt32)
	}
	defaultTo(&spec.BackoffLimit, 6)
	defaultTo(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	defaultTo(&spec.Suspend, false)
	defaultTo(&spec.ManualSelector, false)
	if spec.PodFailurePolicy == nil {
		defaultTo(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
		return
	}
	defaultTo(&spec.PodReplacementPolicy, batchv1.Failed)
	defaultPodConditions(spec.PodFailurePolicy)
}

func defaultPodConditions(policy *batchv1.PodFailurePolicy) {
	for _, rule := range policy.Rules {
		for i := range rule.OnPodConditions {
			if rule.OnPodConditions[i].Status == "" {
				rule.OnPodConditions[i].Status = corev1.ConditionTrue
			}
		}
	}
}

// prepareJob generates the selector, unless the client provides its own, and adds the labels that
// it matches to the template.
func prepareJob(_ context.Context, j *batchv1.Job) {
	j.Spec.Scheduling = nil // belongs to the feature WorkloadWithJob, which is off
	podspec.DropDisabledFields(&j.Spec.Template, nil)
	if *j.Spec.ManualSelector {
		return
	}
	// Keep labels and a selector set by the client: validation rejects any that differ.
	tmpl := &j.Spec.Template
	if tmpl.Labels == nil {
		tmpl.Labels = map[string]string{}
	}
	for label, value := range podLabels(j) {
		if _, ok := tmpl.Labels[label]; !ok {
			tmpl.Labels[label] = value
		}
	}
	defaultTo(&j.Spec.Selector, metav1.LabelSelector{})
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, ok := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !ok {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(j.UID)
	}
}

// podLabels returns the labels of the pods of a job with a generated selector.
func podLabels(j *batchv1.Job) map[string]string {
	return map[string]string{
		batchv1.ControllerUidLabel: string(j.UID),
		batchv1.JobNameLabel:       j.Name,
		legacyControllerLabel:      string(j.UID),
		legacyNameLabel:            j.Name,
	}
}

// jobWarnings returns warnings about the spec of a job, or of a job template, at path.
func jobWarnings(
	path *field.Path, spec *batchv1.JobSpec, oldTemplate *corev1.PodTemplateSpec,
) []string {
	var warnings []string
	if ptr.Deref(spec.CompletionMode, "") == batchv1.IndexedCompletion &&
		ptr.Deref(spec.Completions, 0) > manyCompletions &&
		ptr.Deref(spec.Parallelism, 0) > maxForManyCompletions {
		warnings = append(warnings, fmt.Sprintf("%s: with more than %d completions and parallelism "+
			"above %d, the status may fail to track the completed indexes if many indexes fail",
			path, manyCompletions, maxForManyCompletions))
	}
	return append(warnings, podspec.TemplateWarnings(path.Child("template"),
		&spec.Template, oldTemplate)...)
}

func statusCell(j *batchv1.Job) string {
	switch {
	case isTrue(j, batchv1.JobComplete):
		return "Complete"
	case isTrue(j, batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case isTrue(j, batchv1.JobSuspended):
		return "Suspended"
	case isTrue(j, batchv1.JobFailureTarget):
		return "FailureTarget"
	case isTrue(j, batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func completionsCell(j *batchv1.Job) string {
	if j.Spec.Completions != nil {
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	}
	if parallelism := ptr.Deref(j.Spec.Parallelism, 0); parallelism > 1 {
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, parallelism)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

func durationCell(j *batchv1.Job) string {
	switch start, end := j.Status.StartTime, j.Status.CompletionTime; {
	case start == nil:
		return ""
	case end == nil:
		return duration.HumanDuration(time.Since(start.Time))
	default:
		return duration.HumanDuration(end.Sub(start.Time))
	}
}

func isTrue(j *batchv1.Job, condition batchv1.JobConditionType) bool {
	for _, c := range j.Status.Conditions {
		if c.Type == condition && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func isFinished(j *batchv1.Job) bool {
	return isTrue(j, batchv1.JobComplete) || isTrue(j, batchv1.JobFailed)
}

// defaultTo points *p to value if *p is nil.
func defaultTo[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}
