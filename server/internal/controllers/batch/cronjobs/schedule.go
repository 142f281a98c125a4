package cronjobs

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// tooMany is the number of missed times above which there is a warning, because the clock may be
// wrong.
const tooMany = 100

// schedule returns the schedule of a CronJob in its time zone, or false if there is none.
func (s *state) schedule() (cron.Schedule, bool) {
	text := s.cron.Spec.Schedule
	if strings.Contains(text, "TZ") {
		s.event(corev1.EventTypeWarning, "UnsupportedSchedule", "CRON_TZ or TZ used in schedule %q is "+
			"not officially supported, see "+
			"https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", text)
	} else if zone := s.cron.Spec.TimeZone; zone != nil {
		if _, err := time.LoadLocation(*zone); err != nil {
			s.event(corev1.EventTypeWarning, "UnknownTimeZone", "invalid timeZone: %q: %s", *zone, err)
			return nil, false
		}
		text = "TZ=" + *zone + " " + text
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		s.event(corev1.EventTypeWarning, "UnparseableSchedule", "unparseable schedule: %q : %s",
			s.cron.Spec.Schedule, err)
		return nil, false
	}
	if schedule.Next(s.since()).IsZero() { // as for the 31st of February
		s.event(corev1.EventTypeWarning, "InvalidSchedule", "invalid schedule: %s : %s",
			s.cron.Spec.Schedule, "time difference between two schedules is less than 1 second")
		return nil, false
	}
	return schedule, true
}

// began returns when a CronJob was last scheduled, or created if it never was.
func (s *state) began() time.Time {
	if last := s.cron.Status.LastScheduleTime; last != nil {
		return last.Time
	}
	return s.cron.CreationTimestamp.Time
}

// since returns the time after which Jobs may be missing.
func (s *state) since() time.Time {
	since := s.began()
	if limit := s.cron.Spec.StartingDeadlineSeconds; limit != nil {
		// Older times are too late to start.
		if oldest := s.now.Add(-loop.Seconds(*limit)); oldest.After(since) {
			since = oldest
		}
	}
	return since
}

// latest returns the last time of a schedule between two times, the later one included. It is zero
// if there is none. Missed is the number of times in between, at most one more than tooMany.
func latest(schedule cron.Schedule, since, now time.Time) (due time.Time, missed int) {
	for t := schedule.Next(since); !t.IsZero() && !t.After(now) && missed <= tooMany; {
		due = t
		missed++
		t = schedule.Next(t)
	}
	if missed <= tooMany {
		return due, missed
	}
	if every, ok := schedule.(cron.ConstantDelaySchedule); ok {
		return due.Add(now.Sub(due) / every.Delay * every.Delay), missed
	}
	// The last time is searched from the end, as there may be millions.
	for back := time.Minute; ; back *= 2 {
		t := schedule.Next(now.Add(-back))
		if t.After(now) {
			continue
		}
		for !t.After(now) {
			due = t
			t = schedule.Next(t)
		}
		return due, missed
	}
}

// resumed returns the time after which Jobs may be missing. If that is in the future because the
// clock has been set back, the schedule goes on from now.
func resumed(schedule cron.Schedule, since, now time.Time) time.Time {
	if !loop.Ahead(since, now) {
		return since
	}
	if every, ok := schedule.(cron.ConstantDelaySchedule); ok {
		return now.Add(-every.Delay)
	}
	return now.Add(-time.Minute)
}

// following returns the first time of a schedule after now, or zero if there is none. Intervals are
// counted from the time when the schedule began. Counted from now, each look at the CronJob would
// put off the next Job.
func following(schedule cron.Schedule, began, now time.Time) time.Time {
	every, ok := schedule.(cron.ConstantDelaySchedule)
	if !ok || began.After(now) {
		return schedule.Next(now)
	}
	return began.Add((now.Sub(began)/every.Delay + 1) * every.Delay)
}

func jobName(c *batchv1.CronJob, due time.Time) string {
	return fmt.Sprintf("%s-%d", c.Name, due.Unix()/60)
}

// jobFor returns the Job of a CronJob for a time.
func jobFor(c *batchv1.CronJob, due time.Time) *batchv1.Job {
	template := c.Spec.JobTemplate.DeepCopy()
	annotations := maps.Clone(template.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	stamp := due
	if c.Spec.TimeZone != nil {
		if zone, err := time.LoadLocation(*c.Spec.TimeZone); err == nil {
			stamp = due.In(zone)
		}
	}
	annotations[batchv1.CronJobScheduledTimestampAnnotation] = stamp.Format(time.RFC3339)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:        jobName(c, due),
			Namespace:   c.Namespace,
			Labels:      template.Labels,
			Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(c, batchv1.SchemeGroupVersion.WithKind("CronJob")),
			},
		},
		Spec: template.Spec,
	}
}
