package cronjobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ended returns the condition with which a Job has ended, or an empty string.
func ended(job *batchv1.Job) batchv1.JobConditionType {
	for _, c := range job.Status.Conditions {
		if c.Status == corev1.ConditionTrue &&
			(c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return c.Type
		}
	}
	return ""
}

// follow brings the list of active Jobs up to date.
func (s *state) follow(ctx context.Context) error {
	exists := map[string]bool{}
	for _, job := range s.jobs {
		exists[string(job.UID)] = true
		end := ended(job)
		active := slices.ContainsFunc(s.cron.Status.Active, func(ref corev1.ObjectReference) bool {
			return ref.UID == job.UID
		})
		switch {
		case !active && end == "":
			s.event(corev1.EventTypeWarning, "UnexpectedJob",
				"Saw a job that the controller did not create or forgot: %s", job.Name)
		case active && end != "":
			s.inactive(job.UID)
			s.event(corev1.EventTypeNormal, "SawCompletedJob", "Saw completed job: %s, condition: %v",
				job.Name, end)
		}
		if at, last := job.Status.CompletionTime, s.cron.Status.LastSuccessfulTime; end ==
			batchv1.JobComplete && at != nil && (last == nil || last.Before(at)) {
			s.cron.Status.LastSuccessfulTime = at.DeepCopy()
			s.changed = true
		}
	}
	for _, ref := range slices.Clone(s.cron.Status.Active) {
		if exists[string(ref.UID)] {
			continue
		}
		// The informer may not have seen it yet.
		job, err := s.Client.BatchV1().Jobs(s.cron.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if apierrors.IsNotFound(err) || job.UID != ref.UID {
			s.inactive(ref.UID)
			s.event(corev1.EventTypeNormal, "MissingJob", "Active job went missing: %v", ref.Name)
		}
	}
	return nil
}

// cleanUp deletes the oldest finished Jobs, beyond those that are kept.
func (s *state) cleanUp(ctx context.Context) error {
	for end, keep := range map[batchv1.JobConditionType]*int32{
		batchv1.JobComplete: s.cron.Spec.SuccessfulJobsHistoryLimit,
		batchv1.JobFailed:   s.cron.Spec.FailedJobsHistoryLimit,
	} {
		if keep == nil {
			continue
		}
		var list []*batchv1.Job
		for _, job := range s.jobs {
			if ended(job) == end && job.DeletionTimestamp == nil {
				list = append(list, job)
			}
		}
		slices.SortFunc(list, func(a, b *batchv1.Job) int {
			return cmp.Or(began(a).Compare(began(b).Time), strings.Compare(a.Name, b.Name))
		})
		for _, job := range list[:max(len(list)-int(*keep), 0)] {
			if err := s.delete(ctx, job.Name, job.UID); err != nil {
				return err
			}
			s.inactive(job.UID)
		}
	}
	return nil
}

func began(job *batchv1.Job) metav1.Time {
	if job.Status.StartTime != nil {
		return *job.Status.StartTime
	}
	return job.CreationTimestamp
}

// delete deletes a Job. Another one with its name is left alone.
func (s *state) delete(ctx context.Context, name string, uid types.UID) error {
	err := s.Client.BatchV1().Jobs(s.cron.Namespace).Delete(ctx, name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
		Preconditions:     metav1.NewUIDPreconditions(string(uid)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		s.event(corev1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
		return fmt.Errorf("delete job %s: %w", name, err)
	}
	s.event(corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", name)
	return nil
}
