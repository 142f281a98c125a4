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

// Labels of a job's pods before the ones with a prefix, which go on being set.
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
				{Name: "Status", Description: "What has become of the job."},
				{Name: "Completions", Description: "Pods that succeeded, of those that have to."},
				{Name: "Duration", Description: "Time from the start to the end, or till now."},
				kind.AgeColumn(),
				{Name: "Containers", Priority: 1, Description: "Names of the template's containers."},
				{Name: "Images", Priority: 1, Description: "Images of the template's containers."},
				{Name: "Selector", Priority: 1, Description: "Labels of the pods that belong to the job."},
			},
			Row: func(j *batchv1.Job) []any {
				names, images := podspec.ContainerCells(&j.Spec.Template.Spec)
				return []any{j.Name, statusCell(j), completionsCell(j), durationCell(j), kind.Age(j), names, images, metav1.FormatLabelSelector(j.Spec.Selector)}
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
			Validate: func(_ context.Context, j, old *batchv1.Job) field.ErrorList { return validateJobStatus(j, old) },
		},
		Generation: true,
		Fields: map[string]func(*batchv1.Job) string{
			"status.successful": func(j *batchv1.Job) string { return strconv.Itoa(int(j.Status.Succeeded)) },
		},
		Wrap: func(s *kind.Storage) rest.Storage { return jobStorage{s} },
		Quirks: kind.Quirks{
			NameOnUpdate: true,
			// From before there was garbage collection; deletions that leave it at that are warned about.
			DefaultDeletion: func(context.Context) rest.GarbageCollectionPolicy { return rest.OrphanDependents },
		},
	}
}

// jobStorage warns whoever deletes jobs without saying what becomes of their pods.
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
		warning.AddWarning(ctx, "", "the job's pods stay: deletion orphans them unless propagationPolicy is Background or Foreground; "+
			"propagationPolicy=Orphan says that it is meant so")
	}
}

func defaultJob(j *batchv1.Job) {
	podspec.SetDefaults(&j.Spec.Template.Spec)
	if len(j.Labels) == 0 && len(j.Spec.Template.Labels) > 0 {
		// The same map, as in kube-apiserver: what prepareJob adds to the one is in the other.
		j.Labels = j.Spec.Template.Labels
	}

	spec := &j.Spec
	// A job without both runs one pod; without completions alone, as many as want to.
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

// prepareJob makes the selector, unless the client wants its own, and gives the template the labels that it selects.
func prepareJob(_ context.Context, j *batchv1.Job) {
	j.Spec.Scheduling = nil // of the feature WorkloadWithJob, which is off
	podspec.DropDisabledFields(&j.Spec.Template, nil)
	if *j.Spec.ManualSelector {
		return
	}
	// Labels and a selector of the client's stay: validation refuses them where they differ.
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

// podLabels are the labels of the pods of a job without a selector of its own.
func podLabels(j *batchv1.Job) map[string]string {
	return map[string]string{
		batchv1.ControllerUidLabel: string(j.UID),
		batchv1.JobNameLabel:       j.Name,
		legacyControllerLabel:      string(j.UID),
		legacyNameLabel:            j.Name,
	}
}

// jobWarnings are about the spec of a job, or of a job's template, at path.
func jobWarnings(path *field.Path, spec *batchv1.JobSpec, oldTemplate *corev1.PodTemplateSpec) []string {
	var warnings []string
	if ptr.Deref(spec.CompletionMode, "") == batchv1.IndexedCompletion &&
		ptr.Deref(spec.Completions, 0) > manyCompletions && ptr.Deref(spec.Parallelism, 0) > maxForManyCompletions {
		warnings = append(warnings, fmt.Sprintf("%s: with more than %d completions and a parallelism above %d, the status cannot tell which "+
			"indexes completed once many fail", path, manyCompletions, maxForManyCompletions))
	}
	return append(warnings, podspec.TemplateWarnings(path.Child("template"), &spec.Template, oldTemplate)...)
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

// defaultTo points *p to value unless it points to something already.
func defaultTo[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}
