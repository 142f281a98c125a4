package jobs

import (
	"context"
	"fmt"
	"slices"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// mostUncounted is how many pods are counted at a time, which limits the size of the status.
const mostUncounted = 500

// track notes the pods that have ended in the status, takes their finalizers and counts them. It
// writes the status, and ends the Job once nothing of it runs any more.
func (s *state) track(ctx context.Context) error {
	status := &s.job.Status
	before := status.DeepCopy()
	s.countGone(s.uids())
	release := s.note()
	status.Active = int32(len(s.active))
	status.Ready = s.ready()
	status.Terminating = ptr.To(int32(s.terminating))
	if s.finish != nil && condition(s.job, s.finish.Type) == nil {
		status.Conditions = append(status.Conditions, *s.finish)
	}
	s.changed = s.changed || !equality.Semantic.DeepEqual(before, status)
	if len(release) == 0 {
		s.end()
		return s.write(ctx)
	}
	if err := s.write(ctx); err != nil {
		return err
	}
	s.known.backoff = s.backoff
	err := s.releaseEach(ctx, release)
	s.countGone(s.uids())
	s.changed = true
	s.end()
	if werr := s.write(ctx); werr != nil {
		return werr
	}
	return err
}

// note notes the pods that have ended as uncounted, and returns those whose finalizers can go.
func (s *state) note() []*corev1.Pod {
	uncounted := s.job.Status.UncountedTerminatedPods
	over := s.finish != nil || s.job.DeletionTimestamp != nil
	fail := s.finish != nil && s.finish.Type == batchv1.JobFailureTarget
	var release []*corev1.Pod
	for _, pod := range s.pods {
		succeeded := pod.Status.Phase == corev1.PodSucceeded
		fails := !succeeded && (fail || failed(s.job, pod))
		if !s.has(pod) || !over && !succeeded && !fails || !over && s.replaceable[indexOf(pod)] == pod {
			continue
		}
		verdict := verdictOf(s.job, pod)
		if !over && fails && verdict.action == batchv1.PodFailurePolicyActionFailJob {
			continue // the next pass has to see why the Job fails
		}
		if len(release) >= mostUncounted {
			s.later(pause)
			break
		}
		release = append(release, pod)
		switch {
		case slices.Contains(uncounted.Failed, pod.UID):
		case succeeded && s.indexed(): // succeededIndexes has it
		case succeeded && !slices.Contains(uncounted.Succeeded, pod.UID):
			uncounted.Succeeded = append(uncounted.Succeeded, pod.UID)
		case fails && s.valid(pod) && verdict.action != batchv1.PodFailurePolicyActionIgnore:
			uncounted.Failed = append(uncounted.Failed, pod.UID)
		}
	}
	if s.indexed() {
		s.job.Status.Succeeded = int32(s.succeededIndexes.count())
		s.job.Status.CompletedIndexes = s.succeededIndexes.String()
		if s.perIndex() {
			s.job.Status.FailedIndexes = ptr.To(s.failedIndexes.String())
		}
	}
	return release
}

// countGone counts the uncounted pods that have lost their finalizer, or are gone.
func (s *state) countGone(have map[types.UID]bool) {
	uncounted := s.job.Status.UncountedTerminatedPods
	counted := func(list *[]types.UID, n *int32) {
		*list = slices.DeleteFunc(*list, func(uid types.UID) bool {
			if !have[uid] {
				*n++
			}
			return !have[uid]
		})
		if len(*list) == 0 {
			*list = nil
		}
	}
	counted(&uncounted.Succeeded, &s.job.Status.Succeeded)
	counted(&uncounted.Failed, &s.job.Status.Failed)
}

// end sets the condition with which the Job ends, if nothing of it is left.
func (s *state) end() {
	uncounted := s.job.Status.UncountedTerminatedPods
	if s.finish == nil || len(s.active) > 0 || s.terminating > 0 || len(s.uids()) > 0 ||
		len(uncounted.Succeeded)+len(uncounted.Failed) > 0 {
		return
	}
	which := batchv1.JobFailed
	if s.finish.Type == batchv1.JobSuccessCriteriaMet {
		which = batchv1.JobComplete
		s.job.Status.CompletionTime = new(metav1.NewTime(s.now))
	}
	s.job.Status.Conditions = append(s.job.Status.Conditions,
		*s.newCondition(which, true, s.finish.Reason, s.finish.Message))
	s.changed = true
}

// write writes the status if it has changed.
func (s *state) write(ctx context.Context) error {
	if !s.changed {
		return nil
	}
	ended := finished(s.job)
	made, err := s.Client.BatchV1().Jobs(s.job.Namespace).UpdateStatus(ctx, s.job,
		metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update status of Job %s: %w", s.key, err)
	}
	s.known.written, s.changed = made, false
	s.job = made.DeepCopy()
	if s.job.Status.UncountedTerminatedPods == nil {
		s.job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	if ended {
		s.again = 0
		if s.finish.Type == batchv1.JobSuccessCriteriaMet {
			if most := s.job.Spec.Completions; most != nil && s.job.Status.Succeeded > *most {
				s.Recorder.Event(s.job, corev1.EventTypeWarning, "TooManySucceededPods",
					"Too many succeeded pods running after completion count reached")
			}
			s.Recorder.Event(s.job, corev1.EventTypeNormal, "Completed", "Job completed")
		} else {
			s.Recorder.Event(s.job, corev1.EventTypeWarning, s.finish.Reason, s.finish.Message)
		}
	}
	return nil
}

// atOnce is the number of finalizers that are removed concurrently.
const atOnce = 16

// releaseEach takes the finalizers from pods. It returns one of the errors.
func (s *state) releaseEach(ctx context.Context, list []*corev1.Pod) error {
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		failure error
	)
	for part := range slices.Chunk(list, max((len(list)+atOnce-1)/atOnce, 1)) {
		running.Go(func() {
			for _, pod := range part {
				if err := s.release(ctx, pod); err != nil {
					mu.Lock()
					failure = err
					mu.Unlock()
					continue
				}
				s.mu.Lock()
				s.released[pod.UID], s.known.released[pod.UID] = true, true
				s.mu.Unlock()
			}
		})
	}
	running.Wait()
	return failure
}
