package cronjobs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/cronjobs"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// cluster is a control plane in which nothing runs Jobs but the test.
type cluster struct {
	*testing.T
	*server.Server
	client kubernetes.Interface
}

func start(t *testing.T, configure ...func(*server.Options)) *cluster {
	t.Helper()
	s, client := workloadtest.Run(t, []string{cronjobs.Name}, configure...)
	return &cluster{t, s, client}
}

// create creates a CronJob that was last scheduled some time ago.
func (c *cluster) create(name string, ago time.Duration, change func(*batchv1.CronJobSpec)) {
	c.Helper()
	cron := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.CronJobSpec{
			Schedule: "* * * * *", Suspend: new(true),
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"cron": name}},
				Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers:    []corev1.Container{{Name: "c", Image: "i"}},
				}}},
			},
		},
	}
	change(&cron.Spec)
	crons := c.client.BatchV1().CronJobs("default")
	if _, err := crons.Create(c.Context(), cron, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.patch(name, fmt.Sprintf(`{"status":{"lastScheduleTime":%q}}`,
		time.Now().Add(-ago).UTC().Format(time.RFC3339)), "status")
	c.patch(name, `{"spec":{"suspend":false}}`)
}

func (c *cluster) patch(name, patch string, subresources ...string) {
	c.Helper()
	_, err := c.client.BatchV1().CronJobs("default").Patch(c.Context(), name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		c.Fatal(err)
	}
}

// jobs waits until check accepts the Jobs of a CronJob, oldest first.
func (c *cluster) jobs(name, what string, check func([]batchv1.Job) bool) []batchv1.Job {
	c.Helper()
	what = name + " " + what
	list := workloadtest.Await(c.T, what, func(ctx context.Context) (*batchv1.JobList, error) {
		return c.client.BatchV1().Jobs("default").List(ctx,
			metav1.ListOptions{LabelSelector: "cron=" + name})
	}, func(list *batchv1.JobList) bool { return check(list.Items) })
	return list.Items
}

func (c *cluster) event(name, reason string) {
	c.Helper()
	workloadtest.AwaitEvent(c.T, c.client, name, reason)
}

// finish has a Job end as its controller would.
func (c *cluster) finish(job *batchv1.Job) {
	c.Helper()
	now := metav1.Now()
	job.Status.StartTime, job.Status.CompletionTime = &now, &now
	for _, which := range []batchv1.JobConditionType{
		batchv1.JobSuccessCriteriaMet, batchv1.JobComplete,
	} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: which, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonCompletionsReached,
			LastTransitionTime: now,
		})
	}
	_, err := c.client.BatchV1().Jobs("default").UpdateStatus(c.Context(), job, metav1.UpdateOptions{})
	if err != nil {
		c.Fatal(err)
	}
}

func number(n int) func([]batchv1.Job) bool {
	return func(list []batchv1.Job) bool { return len(list) == n }
}

// TestSchedule creates one Job for the last of the minutes that were missed, follows it, and
// creates no other one for that minute after a restart.
func TestSchedule(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := start(t, func(o *server.Options) { o.DataDir = dir })
	// Once a year, so that the test never meets two times.
	minute := time.Now().UTC().Add(-time.Hour).Truncate(time.Minute)
	c.create("c", 24*time.Hour, func(s *batchv1.CronJobSpec) {
		s.Schedule = fmt.Sprintf("%d %d %d %d *", minute.Minute(), minute.Hour(), minute.Day(),
			minute.Month())
		s.TimeZone = new("Etc/UTC")
	})
	job := c.jobs("c", "created", number(1))[0]
	if job.Name != fmt.Sprintf("c-%d", minute.Unix()/60) ||
		job.Annotations[batchv1.CronJobScheduledTimestampAnnotation] != minute.Format(time.RFC3339) ||
		metav1.GetControllerOf(&job).Kind != "CronJob" {
		t.Errorf("unexpected job: %+v", job.ObjectMeta)
	}
	status := func(what string, check func(batchv1.CronJobStatus) bool) {
		t.Helper()
		workloadtest.Await(t, what, func(ctx context.Context) (*batchv1.CronJob, error) {
			return c.client.BatchV1().CronJobs("default").Get(ctx, "c", metav1.GetOptions{})
		}, func(cron *batchv1.CronJob) bool { return check(cron.Status) })
	}
	status("active", func(s batchv1.CronJobStatus) bool {
		return len(s.Active) == 1 && s.Active[0].UID == job.UID && s.LastScheduleTime.Time.Equal(minute)
	})
	c.event("c", "SuccessfulCreate")
	// As if the controller had ended before it wrote the status.
	c.patch("c", `{"spec":{"suspend":true}}`)
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	off := servertest.Run(t, func(o *server.Options) {
		o.DataDir, o.Controllers = dir, []string{"-*"}
	})
	c.client = kubernetes.NewForConfigOrDie(off.RESTConfig())
	c.patch("c", fmt.Sprintf(`{"status":{"active":null,"lastScheduleTime":%q}}`,
		minute.Add(-time.Hour).Format(time.RFC3339)), "status")
	c.patch("c", `{"spec":{"suspend":false}}`)
	if err := off.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c = start(t, func(o *server.Options) { o.DataDir = dir })
	status("active again", func(s batchv1.CronJobStatus) bool {
		return len(s.Active) == 1 && s.Active[0].UID == job.UID && s.LastScheduleTime.Time.Equal(minute)
	})
	c.finish(&c.jobs("c", "kept", number(1))[0])
	status("done", func(s batchv1.CronJobStatus) bool {
		return len(s.Active) == 0 && s.LastSuccessfulTime != nil
	})
	c.event("c", "SawCompletedJob")
	c.patch("c", `{"spec":{"successfulJobsHistoryLimit":0}}`)
	c.jobs("c", "history", number(0))
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	c := start(t)
	hourly := func(policy batchv1.ConcurrencyPolicy) func(*batchv1.CronJobSpec) {
		return func(s *batchv1.CronJobSpec) {
			s.Schedule, s.ConcurrencyPolicy = "@every 1h", policy
		}
	}
	// again has the next Job due although the last one runs.
	again := func(name string) {
		t.Helper()
		workloadtest.Await(t, "active", func(ctx context.Context) (*batchv1.CronJob, error) {
			return c.client.BatchV1().CronJobs("default").Get(ctx, name, metav1.GetOptions{})
		}, func(cron *batchv1.CronJob) bool { return len(cron.Status.Active) == 1 })
		c.patch(name, fmt.Sprintf(`{"status":{"lastScheduleTime":%q}}`,
			time.Now().Add(-2*time.Hour).UTC().Format(time.RFC3339)), "status")
	}
	for _, policy := range []batchv1.ConcurrencyPolicy{
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent,
	} {
		name := map[batchv1.ConcurrencyPolicy]string{
			batchv1.AllowConcurrent: "allow", batchv1.ForbidConcurrent: "forbid",
			batchv1.ReplaceConcurrent: "replace",
		}[policy]
		c.create(name, 90*time.Minute, hourly(policy))
		first := c.jobs(name, "first", number(1))[0]
		again(name)
		switch policy {
		case batchv1.AllowConcurrent:
			c.jobs(name, "second", number(2))
		case batchv1.ForbidConcurrent:
			c.event(name, "JobAlreadyActive")
			c.jobs(name, "no second", number(1))
		case batchv1.ReplaceConcurrent:
			c.jobs(name, "replaced", func(list []batchv1.Job) bool {
				return len(list) == 1 && list[0].UID != first.UID
			})
		}
	}
}

func TestTooLate(t *testing.T) {
	t.Parallel()
	c := start(t)
	due := time.Now().UTC().Add(-30 * time.Minute)
	c.create("late", 90*time.Minute, func(s *batchv1.CronJobSpec) {
		s.Schedule = fmt.Sprintf("%d %d %d %d *", due.Minute(), due.Hour(), due.Day(), due.Month())
		s.StartingDeadlineSeconds = new(int64(60))
		s.TimeZone = new("Etc/UTC")
	})
	c.create("many", 2*time.Hour, func(s *batchv1.CronJobSpec) { s.Schedule = "*/1 * * * *" })
	c.event("many", "TooManyMissedTimes")
	list := c.jobs("many", "the last one", func(list []batchv1.Job) bool { return len(list) > 0 })
	at, err := time.Parse(time.RFC3339,
		list[0].Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	if err != nil || time.Since(at) > 2*time.Minute {
		t.Errorf("created for %v: %v", at, err)
	}
	late := metav1.ListOptions{LabelSelector: "cron=late"}
	if list, err := c.client.BatchV1().Jobs("default").List(t.Context(), late); err != nil ||
		len(list.Items) > 0 {
		t.Errorf("late: %v, %+v", err, list)
	}
	c.patch("late", `{"spec":{"startingDeadlineSeconds":3600}}`)
	c.jobs("late", "in time", number(1))
}
