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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
)

// Name is the name of the controller in kube-controller-manager, and the component of its events.
const Name = "cronjob-controller"

// Controller creates Jobs.
type Controller struct {
	loop.Dependencies
}

// New returns a controller. Whoever made the informers starts them.
func New(d loop.Dependencies) (*Controller, error) {
	d.Informers.Batch().V1().CronJobs().Informer()
	if err := ownerrefs.AddIndex(d.Informers.Batch().V1().Jobs().Informer()); err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	return &Controller{d}, nil
}

// run is the state of one call of Run.
type run struct {
	*Controller
	queue *loop.Queue

	mu sync.Mutex
	// written are the CronJobs whose status was written, which the informer may not have seen.
	written map[string]*batchv1.CronJob
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, queue: loop.New(Name), written: map[string]*batchv1.CronJob{}}
	var handlers loop.Handlers
	defer handlers.Remove()
	batch := c.Informers.Batch().V1()
	if err := handlers.Add(batch.CronJobs().Informer(), loop.OnChange(
		func(old, cron *batchv1.CronJob) {
			if cron == nil {
				cron = old
			}
			r.queue.Soon(cache.MetaObjectToName(cron).String())
		})); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	if err := handlers.Add(batch.Jobs().Informer(), loop.OnChange(
		func(old, job *batchv1.Job) {
			if job == nil {
				job = old
			}
			if ref := metav1.GetControllerOfNoCopy(job); ref != nil && ref.Kind == "CronJob" {
				r.queue.Add(cache.NewObjectName(job.Namespace, ref.Name).String())
			}
		})); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return r.queue.Run(ctx, 2, r.sync, handlers.Synced()...)
}

func (r *run) sync(ctx context.Context, key string) (time.Duration, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return 0, err
	}
	cron, err := r.Informers.Batch().V1().CronJobs().Lister().CronJobs(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.written, key)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	s := &state{run: r, key: key, cron: r.newest(key, cron).DeepCopy(), now: time.Now()}
	if s.jobs, err = ownerrefs.Owned[*batchv1.Job](
		r.Informers.Batch().V1().Jobs().Informer().GetIndexer(), cron.UID); err != nil {
		return 0, err
	}
	next, err := s.sync(ctx)
	if werr := s.write(ctx); apierrors.IsConflict(werr) {
		return time.Second, nil // the informer will see the change
	} else if werr != nil && !apierrors.IsNotFound(werr) {
		return 0, werr
	}
	if err == nil && next > 0 {
		r.queue.AddAfter(key, next)
	}
	return 0, err
}

// newest returns a CronJob as it was last written, if the informer has an older version.
func (r *run) newest(key string, cron *batchv1.CronJob) *batchv1.CronJob {
	r.mu.Lock()
	defer r.mu.Unlock()
	written := r.written[key]
	if written == nil {
		return cron
	}
	n, err := resourceversion.CompareResourceVersion(cron.ResourceVersion, written.ResourceVersion)
	if err == nil && n < 0 && written.UID == cron.UID {
		return written
	}
	delete(r.written, key)
	return cron
}

// state is a CronJob while it is looked at.
type state struct {
	*run
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
	due, missed := latest(schedule, s.since(), s.now)
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
