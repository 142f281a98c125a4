// Package cronjobs has the controller that creates Jobs on the schedules of CronJobs.
//
// The name of a Job says for which minute it was created, so no minute gets two Jobs even if the
// controller ends before it has noted the first one.
package cronjobs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
)

// Name is the name of the loop in kube-controller-manager, and the component of its events.
const Name = "cronjob-controller"

// Loop is the loop of CronJobs.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "cronjob", Purpose: "creates Jobs on the schedules of CronJobs",
		Workload: true, Workers: 2, Begin: begin,
		After: []schema.GroupResource{batchv1.Resource("cronjobs")},
	}
}

type controller struct {
	*loop.Controller
	crons, jobs cache.SharedIndexInformer

	mu sync.Mutex
	// written are the CronJobs whose status was written, which the informer may not have seen.
	written map[string]*batchv1.CronJob
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{
		Controller: l, written: map[string]*batchv1.CronJob{},
		crons: l.Informer(&batchv1.CronJob{}),
		jobs:  l.Informer(&batchv1.Job{}),
	}
	jobs := loop.On(c.jobs, func(old, job *batchv1.Job) {
		if job == nil {
			job = old
		}
		if ref := metav1.GetControllerOfNoCopy(job); ref != nil && ref.Kind == "CronJob" {
			c.Add(job.Namespace + "/" + ref.Name)
		}
	})
	jobs.Indexers = ownerrefs.Indexers()
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{loop.Keys(c.crons, c.Enqueue), jobs}}
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	cron := loop.Get[batchv1.CronJob](c.crons, key)
	if cron == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.written, key)
		return 0, nil
	}
	s := &state{controller: c, key: key, cron: c.newest(key, cron).DeepCopy(), now: time.Now()}
	var err error
	if s.jobs, err = ownerrefs.Owned[*batchv1.Job](c.jobs.GetIndexer(), cron.UID); err != nil {
		return 0, err
	}
	next, err := s.sync(ctx)
	if werr := s.write(ctx); werr != nil && !apierrors.IsNotFound(werr) {
		return 0, werr
	}
	return next, err
}

// newest returns a CronJob as it was last written, if the informer has an older version.
func (c *controller) newest(key string, cron *batchv1.CronJob) *batchv1.CronJob {
	c.mu.Lock()
	defer c.mu.Unlock()
	written := c.written[key]
	if written == nil {
		return cron
	}
	n, err := resourceversion.CompareResourceVersion(cron.ResourceVersion, written.ResourceVersion)
	if err == nil && n < 0 && written.UID == cron.UID {
		return written
	}
	delete(c.written, key)
	return cron
}

// state is a CronJob while it is looked at.
type state struct {
	*controller
	key     string
	cron    *batchv1.CronJob // a copy
	jobs    []*batchv1.Job
	now     time.Time
	changed bool // whether the status is to be written
}

func (s *state) event(kind, reason, format string, args ...any) {
	s.Recorder.Eventf(s.cron, kind, reason, format, args...)
}

func (s *state) write(ctx context.Context) error {
	if !s.changed {
		return nil
	}
	made, err := s.Client.BatchV1().CronJobs(s.cron.Namespace).UpdateStatus(ctx, s.cron,
		metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update status of CronJob %s: %w", s.key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[s.key] = made
	return nil
}

// sync creates the Job that is due. It returns how long to wait until the next one is.
func (s *state) sync(ctx context.Context) (time.Duration, error) {
	if err := s.cleanUp(ctx); err != nil {
		return 0, err
	}
	if err := s.follow(ctx); err != nil {
		return 0, err
	}
	if s.cron.DeletionTimestamp != nil || s.cron.Spec.Suspend != nil && *s.cron.Spec.Suspend {
		return 0, nil
	}
	schedule, ok := s.schedule()
	if !ok {
		return 0, nil
	}
	due, missed := latest(schedule, resumed(schedule, s.since(), s.now), s.now)
	next := following(schedule, s.began(), s.now).Sub(s.now)
	if missed > tooMany {
		s.event(corev1.EventTypeWarning, "TooManyMissedTimes", "too many missed start times. Set or "+
			"decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	if due.IsZero() || s.cron.Status.LastScheduleTime != nil &&
		s.cron.Status.LastScheduleTime.Time.Equal(due) {
		return next, nil
	}
	if limit := s.cron.Spec.StartingDeadlineSeconds; limit != nil &&
		due.Add(loop.Seconds(*limit)).Before(s.now) {
		s.event(corev1.EventTypeWarning, "MissSchedule", "Missed scheduled time to start a job: %s",
			due.UTC().Format(time.RFC1123Z))
		return next, nil
	}
	if s.isActive(jobName(s.cron, due)) {
		return next, nil
	}
	switch s.cron.Spec.ConcurrencyPolicy {
	case batchv1.ForbidConcurrent:
		if len(s.cron.Status.Active) > 0 {
			s.event(corev1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution "+
				"is running and concurrency policy is Forbid")
			return next, nil
		}
	case batchv1.ReplaceConcurrent:
		for _, ref := range slices.Clone(s.cron.Status.Active) {
			if err := s.delete(ctx, ref.Name, ref.UID); err != nil {
				return 0, err
			}
			s.inactive(ref.UID)
		}
	}
	return next, s.create(ctx, due)
}

func (s *state) isActive(name string) bool {
	return slices.ContainsFunc(s.cron.Status.Active, func(ref corev1.ObjectReference) bool {
		return ref.Name == name
	})
}

// inactive removes a Job from those that are active, and reports whether it was there.
func (s *state) inactive(uid types.UID) bool {
	before := len(s.cron.Status.Active)
	s.cron.Status.Active = slices.DeleteFunc(s.cron.Status.Active,
		func(ref corev1.ObjectReference) bool { return ref.UID == uid })
	found := len(s.cron.Status.Active) < before
	s.changed = s.changed || found
	return found
}

// create creates the Job for a time.
func (s *state) create(ctx context.Context, due time.Time) error {
	job := jobFor(s.cron, due)
	jobs := s.Client.BatchV1().Jobs(s.cron.Namespace)
	made, err := jobs.Create(ctx, job, metav1.CreateOptions{})
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case apierrors.IsAlreadyExists(err):
		// It was created before this controller started, or by someone else.
		if made, err = jobs.Get(ctx, job.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !metav1.IsControlledBy(made, s.cron) {
			return nil
		}
	case err != nil:
		s.event(corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return fmt.Errorf("create job of CronJob %s: %w", s.key, err)
	default:
		s.event(corev1.EventTypeNormal, "SuccessfulCreate", "Created job %v", made.Name)
	}
	if ended(made) == "" {
		s.cron.Status.Active = append(s.cron.Status.Active, corev1.ObjectReference{
			APIVersion: "batch/v1", Kind: "Job", Namespace: made.Namespace, Name: made.Name,
			UID: made.UID, ResourceVersion: made.ResourceVersion,
		})
	}
	s.cron.Status.LastScheduleTime = new(metav1.NewTime(due))
	s.changed = true
	return nil
}
