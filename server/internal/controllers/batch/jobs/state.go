package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// state is a Job while it is looked at.
type state struct {
	*controller
	known *known
	key   string
	job   *batchv1.Job // a copy
	now   time.Time
	again time.Duration // when to look again even if nothing happens, if positive

	// released is what known had released before the pods were read from the informer. A pod that
	// was read may be older than what known has now.
	released map[types.UID]bool

	pods   []*corev1.Pod
	active []*corev1.Pod
	// terminating is the number of pods that are being deleted.
	terminating       int
	succeeded, failed int
	// ended are the pods that have ended and are not yet noted as such in the status.
	ended   []*corev1.Pod
	backoff backoff
	// succeededIndexes and failedIndexes are nil unless the Job has them.
	succeededIndexes, failedIndexes indexes
	// replaceable are the failed pods of the indexes that are to be tried again. They keep their
	// finalizers until then, because they know how often the index has failed.
	replaceable map[int]*corev1.Pod
	// finish says how the Job ends: SuccessCriteriaMet or FailureTarget. It is nil until that is
	// decided.
	finish *batchv1.JobCondition
	// changed is set if the status is to be written.
	changed bool
}

func (s *state) later(d time.Duration) {
	if d > 0 && (s.again <= 0 || d < s.again) {
		s.again = d
	}
}

func (s *state) indexed() bool {
	return ptr.Deref(s.job.Spec.CompletionMode, "") == batchv1.IndexedCompletion
}

func (s *state) perIndex() bool { return s.job.Spec.BackoffLimitPerIndex != nil && s.indexed() }

func (s *state) suspended() bool { return ptr.Deref(s.job.Spec.Suspend, false) }

func (s *state) owner() (ownerrefs.Owner, error) {
	selector, err := metav1.LabelSelectorAsSelector(s.job.Spec.Selector)
	if err != nil {
		return ownerrefs.Owner{}, fmt.Errorf("selector of Job %s: %w", s.key, err)
	}
	return ownerrefs.Owner{
		Object:   s.job,
		Kind:     batchv1.SchemeGroupVersion.WithKind("Job"),
		Selector: selector,
		Read: func(ctx context.Context) (metav1.Object, error) {
			return s.Client.BatchV1().Jobs(s.job.Namespace).Get(ctx, s.job.Name, metav1.GetOptions{})
		},
	}, nil
}

// sync brings a Job and its pods one step further.
func (s *state) sync(ctx context.Context) error {
	owner, err := s.owner()
	if err != nil {
		return err
	}
	satisfied := s.controller.pods.Satisfied(s.job.UID) // before the informer is read
	if !satisfied {
		s.later(pods.ExpectationTimeout)
	}
	s.mu.Lock()
	s.released = maps.Clone(s.known.released)
	s.mu.Unlock()
	if s.pods, err = s.controller.pods.Claim(ctx, owner, batchv1.JobTrackingFinalizer); err != nil {
		return err
	}
	if s.job.Status.UncountedTerminatedPods == nil {
		s.job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	if s.job.Status.StartTime == nil && !s.suspended() {
		s.job.Status.StartTime = new(metav1.NewTime(s.now))
		s.changed = true
	}
	s.count()
	s.decide()
	var errs error
	switch {
	case s.finish != nil:
		if satisfied {
			errs = s.stop(ctx, owner)
		}
		if !satisfied || errs != nil || len(s.active) > 0 {
			s.finish = nil // pods would outlive the Job
		}
	case satisfied && s.job.DeletionTimestamp == nil:
		errs = s.manage(ctx, owner)
		s.complete()
		s.suspend()
	}
	return errors.Join(s.track(ctx), errs)
}

// stop deletes pods that still run when the end of the Job is decided. Pods of a Job that fails
// count as failed.
func (s *state) stop(ctx context.Context, owner ownerrefs.Owner) error {
	unneeded := s.active
	if len(unneeded) > most {
		unneeded = unneeded[:most]
		s.later(pause)
	}
	if s.finish.Type == batchv1.JobSuccessCriteriaMet {
		return s.drop(ctx, owner, slices.Clone(unneeded))
	}
	if err := s.controller.pods.Delete(ctx, owner, unneeded); err != nil {
		return err
	}
	s.terminating += len(unneeded)
	s.active = s.active[len(unneeded):]
	return nil
}

// valid reports whether a pod counts: in an indexed Job, those do whose index is one of the Job's.
func (s *state) valid(pod *corev1.Pod) bool {
	i := indexOf(pod)
	return !s.indexed() || i >= 0 && i < int(*s.job.Spec.Completions)
}

// has reports whether a pod still has the finalizer, as far as is known.
func (s *state) has(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return tracked(pod) && !s.released[pod.UID]
}

// count counts the pods.
func (s *state) count() {
	uncounted := s.job.Status.UncountedTerminatedPods
	var succeededNow, failedNow int
	for _, pod := range s.pods {
		switch {
		case pods.Active(pod):
			s.active = append(s.active, pod)
		case pods.Terminating(pod):
			s.terminating++
		}
		if !s.has(pod) || !s.valid(pod) || slices.Contains(uncounted.Succeeded, pod.UID) ||
			slices.Contains(uncounted.Failed, pod.UID) {
			continue
		}
		if pod.Status.Phase == corev1.PodSucceeded {
			succeededNow++
			s.ended = append(s.ended, pod)
		} else if failed(s.job, pod) {
			if verdictOf(s.job, pod).action != batchv1.PodFailurePolicyActionIgnore {
				failedNow++
			}
			s.ended = append(s.ended, pod)
		}
	}
	s.backoff = s.known.backoff.with(s.ended, s.now)
	s.succeeded = int(s.job.Status.Succeeded) + succeededNow + len(uncounted.Succeeded)
	s.failed = int(s.job.Status.Failed) + failedNow + len(uncounted.Failed)
	if s.indexed() {
		s.countIndexes()
	}
}

func (s *state) countIndexes() {
	end := int(*s.job.Spec.Completions)
	var succeeded, failedNow []int
	for _, pod := range s.ended {
		if i := indexOf(pod); pod.Status.Phase == corev1.PodSucceeded && i >= 0 && i < end {
			succeeded = append(succeeded, i)
		}
	}
	s.succeededIndexes = parseIndexes(s.job.Status.CompletedIndexes, end).with(succeeded)
	s.succeeded = s.succeededIndexes.count()
	if !s.perIndex() {
		return
	}
	s.replaceable = map[int]*corev1.Pod{}
	for _, pod := range s.pods {
		i := indexOf(pod)
		if !s.has(pod) || !failed(s.job, pod) || i < 0 || i >= end || s.succeededIndexes.has(i) {
			continue
		}
		counted, _ := indexFailures(s.job, pod)
		if verdictOf(s.job, pod).action == batchv1.PodFailurePolicyActionFailIndex ||
			counted > int(*s.job.Spec.BackoffLimitPerIndex) {
			failedNow = append(failedNow, i)
			continue
		}
		if other := s.replaceable[i]; other == nil || tries(other) < tries(pod) ||
			tries(other) == tries(pod) && endOf(other).Before(endOf(pod)) {
			s.replaceable[i] = pod
		}
	}
	s.failedIndexes = parseIndexes(ptr.Deref(s.job.Status.FailedIndexes, ""), end).with(failedNow)
	for _, pod := range s.pods {
		i := indexOf(pod)
		if s.failedIndexes.has(i) || pods.Active(pod) {
			delete(s.replaceable, i) // it has been replaced, or never will be
		}
	}
}

// decide finds out whether the Job has failed, or has met its success policy.
func (s *state) decide() {
	for _, which := range []batchv1.JobConditionType{
		batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet,
	} {
		if c := condition(s.job, which); c != nil {
			s.finish = c
			return
		}
	}
	fails := func(reason, message string) {
		s.finish = s.newCondition(batchv1.JobFailureTarget, true, reason, message)
	}
	for _, pod := range s.pods {
		if !failed(s.job, pod) || !s.has(pod) {
			continue
		}
		if v := verdictOf(s.job, pod); v.action == batchv1.PodFailurePolicyActionFailJob {
			fails(batchv1.JobReasonPodFailurePolicy, v.message)
			return
		}
	}
	if s.failed > int(*s.job.Spec.BackoffLimit) || restartsExceeded(s.job, s.pods) {
		fails(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
		return
	}
	if limit := s.job.Spec.ActiveDeadlineSeconds; limit != nil && !s.suspended() {
		left := loop.Seconds(*limit)
		if condition(s.job, batchv1.JobSuspended) == nil { // otherwise it is being resumed
			left -= s.now.Sub(s.known.begun(s.job.Status.StartTime.Time, s.now))
		}
		if left <= 0 {
			fails(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
			return
		}
		s.later(left)
	}
	if !s.indexed() {
		return
	}
	if n := s.failedIndexes.count(); n > 0 {
		if most := s.job.Spec.MaxFailedIndexes; most != nil && n > int(*most) {
			fails(batchv1.JobReasonMaxFailedIndexesExceeded,
				"Job has exceeded the specified maximal number of failed indexes")
			return
		}
		if n+s.succeeded >= int(*s.job.Spec.Completions) {
			fails(batchv1.JobReasonFailedIndexes, "Job has failed indexes")
			return
		}
	}
	if n := successPolicy(s.job, s.succeededIndexes); n >= 0 {
		s.finish = s.newCondition(batchv1.JobSuccessCriteriaMet, true, batchv1.JobReasonSuccessPolicy,
			fmt.Sprintf("Matched rules at index %d", n))
	}
}

// complete finds out whether enough pods have succeeded.
func (s *state) complete() {
	if len(s.active) > 0 || s.succeeded < int(ptr.Deref(s.job.Spec.Completions, 1)) {
		return
	}
	s.finish = s.newCondition(batchv1.JobSuccessCriteriaMet, true, batchv1.JobReasonCompletionsReached,
		"Reached expected number of succeeded pods")
}

func (s *state) newCondition(
	which batchv1.JobConditionType, is bool, reason, message string,
) *batchv1.JobCondition {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	return &batchv1.JobCondition{
		Type: which, Status: status, Reason: reason, Message: message,
		LastProbeTime: metav1.NewTime(s.now), LastTransitionTime: metav1.NewTime(s.now),
	}
}

// suspend sets the condition Suspended of a Job that is or was suspended. A Job has a start time
// only while it is not suspended, and begins anew when it is resumed.
func (s *state) suspend() {
	if s.finish != nil {
		return
	}
	if was := condition(s.job, batchv1.JobSuspended) != nil; was == s.suspended() {
		return
	}
	now := s.newCondition(batchv1.JobSuspended, s.suspended(), "JobSuspended", "Job suspended")
	if s.suspended() {
		if features.Enabled(features.MutableSchedulingDirectivesForSuspendedJobs) {
			s.job.Status.StartTime = nil
		}
		s.Recorder.Event(s.job, corev1.EventTypeNormal, "Suspended", "Job suspended")
	} else {
		now.Reason, now.Message = "JobResumed", "Job resumed"
		s.job.Status.StartTime = new(metav1.NewTime(s.now))
		s.Recorder.Event(s.job, corev1.EventTypeNormal, "Resumed", "Job resumed")
	}
	loop.SetCondition(&s.job.Status.Conditions, *now, conditionFields)
	s.changed = true
}

// uids returns the uids of the pods that still have the finalizer.
func (s *state) uids() map[types.UID]bool {
	set := map[types.UID]bool{}
	for _, pod := range s.pods {
		if s.has(pod) {
			set[pod.UID] = true
		}
	}
	return set
}
