package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/core/internal/rules/workloads"
)

// validateJobStatus validates a status update by rules that hold whichever controller manages the
// job (KEP-4368). Most rules check only what has changed: the rest was not set by this request, and
// may be outdated after a change of the spec.
func validateJobStatus(j, old *batchv1.Job) field.ErrorList {
	path := field.NewPath("status")
	errs := workloads.ValidateCounters(path,
		workloads.Counter{Field: "active", Value: int64(j.Status.Active)},
		workloads.Counter{Field: "succeeded", Value: int64(j.Status.Succeeded)},
		workloads.Counter{Field: "failed", Value: int64(j.Status.Failed)},
		workloads.Counter{Field: "ready", Value: int64(ptr.Deref(j.Status.Ready, 0))},
		workloads.Counter{Field: "terminating", Value: int64(ptr.Deref(j.Status.Terminating, 0))})
	if pods := j.Status.UncountedTerminatedPods; pods != nil {
		seen := sets.New[types.UID]()
		errs = append(errs, validateUIDs(pods.Succeeded, seen,
			path.Child("uncountedTerminatedPods", "succeeded"))...)
		errs = append(errs, validateUIDs(pods.Failed, seen,
			path.Child("uncountedTerminatedPods", "failed"))...)
	}
	errs = append(errs, validateConditions(j, old, path.Child("conditions"))...)
	errs = append(errs, validateFinish(j, old, path)...)
	errs = append(errs, validateIndexLists(j, old, path)...)
	return append(errs, validateProgress(j, old, path)...)
}

func validateUIDs(uids []types.UID, seen sets.Set[types.UID], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, uid := range uids {
		switch {
		case uid == "":
			errs = append(errs, field.Invalid(path.Index(i), uid, "must not be empty"))
		case seen.Has(uid):
			errs = append(errs, field.Duplicate(path.Index(i), uid))
		}
		seen.Insert(uid)
	}
	return errs
}

// validateConditions rejects contradictory conditions and the removal of final ones.
func validateConditions(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	refuse := func(wrong bool, why string) {
		if wrong {
			errs = append(errs, field.Invalid(path, field.OmitValueType{}, why))
		}
	}
	changed := func(c batchv1.JobConditionType) bool { return isTrue(j, c) != isTrue(old, c) }
	complete, failed := isTrue(j, batchv1.JobComplete), isTrue(j, batchv1.JobFailed)
	toFail, met := isTrue(j, batchv1.JobFailureTarget), isTrue(j, batchv1.JobSuccessCriteriaMet)

	completeChanged := changed(batchv1.JobComplete)
	refuse(complete && failed && (completeChanged || changed(batchv1.JobFailed)),
		"a job cannot be both Complete and Failed")
	refuse(complete && toFail && (completeChanged || changed(batchv1.JobFailureTarget)),
		"a job with FailureTarget cannot be Complete")
	refuse(failed && !toFail && (changed(batchv1.JobFailed) || changed(batchv1.JobFailureTarget)),
		"a job cannot be Failed without FailureTarget")
	refuse(complete && !met && (completeChanged || changed(batchv1.JobSuccessCriteriaMet)),
		"a job cannot be Complete without SuccessCriteriaMet")
	refuse(met && failed, "a job with SuccessCriteriaMet cannot be Failed")
	refuse(met && toFail, "a job cannot have both SuccessCriteriaMet and FailureTarget")
	refuse(complete && !met && j.Spec.SuccessPolicy != nil,
		"a job with a successPolicy cannot be Complete without SuccessCriteriaMet")

	for _, final := range []batchv1.JobConditionType{
		batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet,
	} {
		refuse(isTrue(old, final) && !isTrue(j, final),
			fmt.Sprintf("condition %s is final and cannot be removed", final))
	}
	refuse(isTrue(old, batchv1.JobComplete) && !isTrue(old, batchv1.JobSuccessCriteriaMet) && met,
		"SuccessCriteriaMet cannot be added to a Complete job")
	return errs
}

// validateFinish requires the fields that a finished job has, and rejects those that only a running
// job has.
func validateFinish(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	s := &j.Status
	complete, finished := isTrue(j, batchv1.JobComplete), isFinished(j)
	completeChanged, finishedChanged := complete != isTrue(old, batchv1.JobComplete),
		finished != isFinished(old)
	startChanged := !equality.Semantic.DeepEqual(s.StartTime, old.Status.StartTime)
	endChanged := !equality.Semantic.DeepEqual(s.CompletionTime, old.Status.CompletionTime)

	end := path.Child("completionTime")
	if completeChanged || endChanged {
		switch {
		case s.CompletionTime != nil && !complete:
			errs = append(errs, field.Invalid(end, s.CompletionTime, "may only be set for Complete jobs"))
		case s.CompletionTime == nil && complete:
			errs = append(errs, field.Required(end, "must be set for Complete jobs"))
		}
	}
	if (startChanged || endChanged) && s.StartTime != nil && s.CompletionTime != nil &&
		s.CompletionTime.Before(s.StartTime) {
		errs = append(errs, field.Invalid(end, s.CompletionTime, "must not be before startTime"))
	}
	if endChanged && s.CompletionTime != nil && old.Status.CompletionTime != nil {
		errs = append(errs, field.Invalid(end, s.CompletionTime, "field is immutable once set"))
	}
	if !finished {
		return errs
	}
	// A suspended job that wants no pods is complete without a start.
	never := ptr.Deref(j.Spec.Suspend, false) && ptr.Deref(j.Spec.Completions, 1) == 0
	if (finishedChanged || startChanged) && s.StartTime == nil && !never {
		errs = append(errs, field.Required(path.Child("startTime"), "must be set for finished jobs"))
	}
	if (finishedChanged || s.Active != old.Status.Active) && s.Active > 0 {
		errs = append(errs, field.Invalid(path.Child("active"), s.Active, "must be 0 for finished jobs"))
	}
	pods := s.UncountedTerminatedPods
	podsChanged := !equality.Semantic.DeepEqual(pods, old.Status.UncountedTerminatedPods)
	if (finishedChanged || podsChanged) && pods != nil && len(pods.Failed)+len(pods.Succeeded) > 0 {
		errs = append(errs, field.Invalid(path.Child("uncountedTerminatedPods"), pods,
			"must be empty for finished jobs"))
	}
	if terminating := ptr.Deref(s.Terminating, 0); terminating > 0 &&
		(finishedChanged || terminating != ptr.Deref(old.Status.Terminating, 0)) {
		errs = append(errs, field.Invalid(path.Child("terminating"), terminating,
			"must be 0 for finished jobs"))
	}
	return errs
}

// validateIndexLists validates the lists of completed and failed indexes.
func validateIndexLists(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	s, completions := &j.Status, j.Spec.Completions
	completedChanged := s.CompletedIndexes != old.Status.CompletedIndexes
	failedChanged := !equality.Semantic.DeepEqual(s.FailedIndexes, old.Status.FailedIndexes)

	if completed := path.Child("completedIndexes"); completedChanged {
		if completions != nil {
			if _, err := parseIndexes(s.CompletedIndexes, *completions); err != nil {
				errs = append(errs, field.Invalid(completed, s.CompletedIndexes, err.Error()))
			}
		}
		if s.CompletedIndexes != "" && !isIndexed(&j.Spec) {
			errs = append(errs, field.Invalid(completed, s.CompletedIndexes,
				"may only be set for indexed jobs"))
		}
	}
	if s.FailedIndexes == nil {
		return errs
	}
	failed := path.Child("failedIndexes")
	if failedChanged && j.Spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Invalid(failed, *s.FailedIndexes,
			"may only be set when backoffLimitPerIndex is set"))
	} else if failedChanged && completions != nil {
		if _, err := parseIndexes(*s.FailedIndexes, *completions); err != nil {
			errs = append(errs, field.Invalid(failed, *s.FailedIndexes, err.Error()))
		}
	}
	if (failedChanged || completedChanged) && completions != nil {
		both := readableIndexes(*s.FailedIndexes, *completions)
		if index, overlap := both.common(readableIndexes(s.CompletedIndexes, *completions)); overlap {
			errs = append(errs, field.Invalid(failed, *s.FailedIndexes,
				fmt.Sprintf("must not contain index %d, which has completed", index)))
		}
	}
	return errs
}

// validateProgress rejects counters that decrease, more ready than active pods, and changes of
// startTime while the job is not suspended, except by the status that says that it is resumed.
func validateProgress(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	s := &j.Status
	if s.Failed < old.Status.Failed {
		errs = append(errs, field.Invalid(path.Child("failed"), s.Failed, "must not decrease"))
	}
	// An indexed job can be scaled down if its completions equal its parallelism.
	elastic := isIndexed(&j.Spec) &&
		equality.Semantic.DeepEqual(j.Spec.Completions, j.Spec.Parallelism)
	if s.Succeeded < old.Status.Succeeded && !elastic {
		errs = append(errs, field.Invalid(path.Child("succeeded"), s.Succeeded, "must not decrease"))
	}
	if ready := ptr.Deref(s.Ready, 0); ready > s.Active &&
		(ready != ptr.Deref(old.Status.Ready, 0) || s.Active != old.Status.Active) {
		errs = append(errs, field.Invalid(path.Child("ready"), ready,
			"must be less than or equal to active"))
	}
	startChanged := !equality.Semantic.DeepEqual(s.StartTime, old.Status.StartTime)
	resumed := isTrue(old, batchv1.JobSuspended) &&
		slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionFalse
		})
	if startChanged && old.Status.StartTime != nil && !ptr.Deref(j.Spec.Suspend, false) && !resumed {
		errs = append(errs, field.Invalid(path.Child("startTime"), s.StartTime,
			"may only be changed while the job is suspended"))
	}
	return errs
}
