package looptest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/batch/cronjobs"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// cronJobs is a namespace whose Jobs end only if the test says so.
type cronJobs struct {
	*testing.T
	*server.Server // nil if it is the shared one
	client         kubernetes.Interface
	namespace      string
}

func startCronJobs(t *testing.T, configure ...func(*server.Options)) *cronJobs {
	t.Helper()
	s, client := workloadtest.Run(t, []string{cronjobs.Name}, configure...)
	return &cronJobs{t, s, client, workloadtest.Namespace}
}

func cronJobsShared(t *testing.T) *cronJobs {
	t.Helper()
	client, namespace := shared(t)
	return &cronJobs{t, nil, client, namespace}
}

// create creates a CronJob that was last scheduled some time ago.
func (c *cronJobs) create(name string, ago time.Duration, change func(*batchv1.CronJobSpec)) {
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
	crons := c.client.BatchV1().CronJobs(c.namespace)
	if _, err := crons.Create(c.Context(), cron, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.patch(name, fmt.Sprintf(`{"status":{"lastScheduleTime":%q}}`,
		time.Now().Add(-ago).UTC().Format(time.RFC3339)), "status")
	c.patch(name, `{"spec":{"suspend":false}}`)
}

func (c *cronJobs) patch(name, patch string, subresources ...string) {
	c.Helper()
	_, err := c.client.BatchV1().CronJobs(c.namespace).Patch(c.Context(), name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		c.Fatal(err)
	}
}

// jobs waits until check accepts the Jobs of a CronJob, oldest first.
func (c *cronJobs) jobs(name, what string, check func([]batchv1.Job) bool) []batchv1.Job {
	c.Helper()
	what = name + " " + what
	list := workloadtest.Await(c.T, what, func(ctx context.Context) (*batchv1.JobList, error) {
		return c.client.BatchV1().Jobs(c.namespace).List(ctx,
			metav1.ListOptions{LabelSelector: "cron=" + name})
	}, func(list *batchv1.JobList) bool { return check(list.Items) })
	return list.Items
}

func (c *cronJobs) event(name, reason string) {
	c.Helper()
	workloadtest.AwaitEvent(c.T, c.client, c.namespace, name, reason)
}

// finish has a Job end as its controller would.
func (c *cronJobs) finish(job *batchv1.Job) {
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
	workloadtest.Must(c.client.BatchV1().Jobs(c.namespace).UpdateStatus(c.Context(), job,
		metav1.UpdateOptions{}))(c.T)
}

// cronJobsNumber returns a check of the number of Jobs.
func cronJobsNumber(n int) func([]batchv1.Job) bool {
	return func(list []batchv1.Job) bool { return len(list) == n }
}

// TestCronJobsSchedule creates one Job for the last of the minutes that were missed, follows it,
// and creates no other one for that minute after a restart.
func TestCronJobsSchedule(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := startCronJobs(t, func(o *server.Options) { o.DataDir = dir })
	// Once a year, so that the test never meets two times.
	minute := time.Now().UTC().Add(-time.Hour).Truncate(time.Minute)
	c.create("c", 24*time.Hour, func(s *batchv1.CronJobSpec) {
		s.Schedule = fmt.Sprintf("%d %d %d %d *", minute.Minute(), minute.Hour(), minute.Day(),
			minute.Month())
		s.TimeZone = new("Etc/UTC")
	})
	job := c.jobs("c", "created", cronJobsNumber(1))[0]
	if job.Name != fmt.Sprintf("c-%d", minute.Unix()/60) ||
		job.Annotations[batchv1.CronJobScheduledTimestampAnnotation] != minute.Format(time.RFC3339) ||
		metav1.GetControllerOf(&job).Kind != "CronJob" {
		t.Errorf("unexpected job: %+v", job.ObjectMeta)
	}
	status := func(what string, check func(batchv1.CronJobStatus) bool) {
		t.Helper()
		workloadtest.Await(t, what, func(ctx context.Context) (*batchv1.CronJob, error) {
			return c.client.BatchV1().CronJobs(c.namespace).Get(ctx, "c", metav1.GetOptions{})
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
	c = startCronJobs(t, func(o *server.Options) { o.DataDir = dir })
	status("active again", func(s batchv1.CronJobStatus) bool {
		return len(s.Active) == 1 && s.Active[0].UID == job.UID && s.LastScheduleTime.Time.Equal(minute)
	})
	c.finish(&c.jobs("c", "kept", cronJobsNumber(1))[0])
	status("done", func(s batchv1.CronJobStatus) bool {
		return len(s.Active) == 0 && s.LastSuccessfulTime != nil
	})
	c.event("c", "SawCompletedJob")
	c.patch("c", `{"spec":{"successfulJobsHistoryLimit":0}}`)
	c.jobs("c", "history", cronJobsNumber(0))
}

func TestCronJobsConcurrency(t *testing.T) {
	t.Parallel()
	c := cronJobsShared(t)
	hourly := func(policy batchv1.ConcurrencyPolicy) func(*batchv1.CronJobSpec) {
		return func(s *batchv1.CronJobSpec) {
			s.Schedule, s.ConcurrencyPolicy = "@every 1h", policy
		}
	}
	// again has the next Job due although the last one runs.
	again := func(name string) {
		t.Helper()
		workloadtest.Await(t, "active", func(ctx context.Context) (*batchv1.CronJob, error) {
			return c.client.BatchV1().CronJobs(c.namespace).Get(ctx, name, metav1.GetOptions{})
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
		first := c.jobs(name, "first", cronJobsNumber(1))[0]
		again(name)
		switch policy {
		case batchv1.AllowConcurrent:
			c.jobs(name, "second", cronJobsNumber(2))
		case batchv1.ForbidConcurrent:
			c.event(name, "JobAlreadyActive")
			c.jobs(name, "no second", cronJobsNumber(1))
		case batchv1.ReplaceConcurrent:
			c.jobs(name, "replaced", func(list []batchv1.Job) bool {
				return len(list) == 1 && list[0].UID != first.UID
			})
		}
	}
}

func TestCronJobsTooLate(t *testing.T) {
	t.Parallel()
	c := cronJobsShared(t)
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
	if list, err := c.client.BatchV1().Jobs(c.namespace).List(t.Context(), late); err != nil ||
		len(list.Items) > 0 {
		t.Errorf("late: %v, %+v", err, list)
	}
	c.patch("late", `{"spec":{"startingDeadlineSeconds":3600}}`)
	c.jobs("late", "in time", cronJobsNumber(1))
}

// cronJobsAlone starts a control plane in which the test runs the controller.
func cronJobsAlone(t *testing.T) *cronJobs {
	t.Helper()
	s := servertest.Run(t, func(o *server.Options) {
		o.Controllers = []string{"garbage-collector-controller"}
	})
	return &cronJobs{t, s, workloadtest.Client(t, s), workloadtest.Namespace}
}

// run runs a controller with a client until stop is called or the test ends. Events get the events
// that it records.
func (c *cronJobs) run(client kubernetes.Interface) (events <-chan string, stop func()) {
	c.Helper()
	d, events := workloadtest.Dependencies(client)
	return events, workloadtest.Start(c.T, d, cronjobs.Loop())
}

// hourly creates a CronJob with one Job due.
func (c *cronJobs) hourly(name string) {
	c.Helper()
	c.create(name, 90*time.Minute, func(s *batchv1.CronJobSpec) { s.Schedule = "@every 1h" })
}

// await gets a CronJob until it is as wanted.
func (c *cronJobs) await(name, what string, wanted func(*batchv1.CronJob) bool) *batchv1.CronJob {
	c.Helper()
	what = name + " " + what
	return workloadtest.Await(c.T, what, func(ctx context.Context) (*batchv1.CronJob, error) {
		return c.client.BatchV1().CronJobs(c.namespace).Get(ctx, name, metav1.GetOptions{})
	}, wanted)
}

// active awaits the only active Job of a CronJob.
func (c *cronJobs) active(name string) batchv1.Job {
	c.Helper()
	cron := c.await(name, "active", func(cron *batchv1.CronJob) bool {
		return len(cron.Status.Active) == 1
	})
	job := c.jobs(name, "only", cronJobsNumber(1))[0]
	if cron.Status.Active[0].UID != job.UID || !metav1.IsControlledBy(&job, cron) {
		c.Errorf("the active job of %+v is %+v", cron, job.ObjectMeta)
	}
	return job
}

func cronJobInactive(cron *batchv1.CronJob) bool { return len(cron.Status.Active) == 0 }

// remove deletes a CronJob or a Job in the background.
func (c *cronJobs) remove(
	ctx context.Context, name string,
	remove func(context.Context, string, metav1.DeleteOptions) error,
) error {
	return remove(ctx, name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
}

// imitate creates a Job of somebody else with the name and the labels of a Job.
func (c *cronJobs) imitate(ctx context.Context, job *batchv1.Job) error {
	jobs := c.client.BatchV1().Jobs(job.Namespace)
	_, err := jobs.Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: job.Name, Labels: job.Labels},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "c", Image: "i"}},
		}}},
	}, metav1.CreateOptions{})
	return err
}

// TestCronJobsRaces changes something when the controller is about to write.
func TestCronJobsRaces(t *testing.T) {
	t.Parallel()
	t.Run("CronJob recreated", func(t *testing.T) {
		t.Parallel()
		c := cronJobsAlone(t)
		c.hourly("c")
		before := c.await("c", "created", cronJobInactive)
		client, done := workloadtest.Meanwhile(t, c.Server, "POST", "/jobs",
			func(ctx context.Context) error {
				return c.remove(ctx, "c", c.client.BatchV1().CronJobs(c.namespace).Delete)
			})
		c.run(client)
		<-done
		c.hourly("c")
		job := c.jobs("c", "of the second", func(list []batchv1.Job) bool {
			return len(list) == 1 && !metav1.IsControlledBy(&list[0], before)
		})[0]
		if active := c.active("c"); active.UID != job.UID {
			t.Errorf("the active job is %+v", active)
		}
	})
	t.Run("CronJob written", func(t *testing.T) {
		t.Parallel()
		c := cronJobsAlone(t)
		c.hourly("c")
		client, _ := workloadtest.Meanwhile(t, c.Server, "PUT", "/cronjobs/c/status",
			func(ctx context.Context) error {
				_, err := c.client.BatchV1().CronJobs(c.namespace).Patch(ctx, "c", types.MergePatchType,
					[]byte(`{"status":{"lastSuccessfulTime":"2020-01-01T00:00:00Z"}}`),
					metav1.PatchOptions{}, "status")
				return err
			})
		c.run(client)
		c.active("c")
		if cron := c.await("c", "written", func(cron *batchv1.CronJob) bool {
			return time.Since(cron.Status.LastScheduleTime.Time) < time.Hour
		}); cron.Status.LastSuccessfulTime == nil {
			t.Errorf("the status of the other was overwritten: %+v", cron.Status)
		}
	})
	t.Run("Job recreated", func(t *testing.T) {
		t.Parallel()
		c := cronJobsAlone(t)
		c.hourly("c")
		_, stop := c.run(c.client)
		job := c.active("c")
		stop()
		c.finish(&job)
		c.patch("c", `{"spec":{"successfulJobsHistoryLimit":0}}`)
		client, done := workloadtest.Meanwhile(t, c.Server, "DELETE", "/jobs/"+job.Name,
			func(ctx context.Context) error {
				if err := c.remove(ctx, job.Name, c.client.BatchV1().Jobs(c.namespace).Delete); err != nil {
					return err
				}
				return c.imitate(ctx, &job)
			})
		c.run(client)
		<-done
		c.await("c", "inactive", cronJobInactive)
		if other := c.jobs("c", "kept", cronJobsNumber(1))[0]; other.UID == job.UID ||
			other.DeletionTimestamp != nil {
			t.Errorf("the job is %+v", other)
		}
	})
	t.Run("namespace deleted", func(t *testing.T) {
		t.Parallel()
		c := cronJobsAlone(t)
		// Nothing deletes what is in the namespace.
		namespaces, dying := c.client.CoreV1().Namespaces(), *c
		dying.namespace = "dying"
		workloadtest.Must(namespaces.Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dying"}}, metav1.CreateOptions{}))(t)
		dying.hourly("c")
		workloadtest.OK(t, namespaces.Delete(t.Context(), "dying", metav1.DeleteOptions{}))
		client, done := workloadtest.Meanwhile(t, c.Server, "POST", "/namespaces/dying/jobs",
			func(context.Context) error { return nil })
		events, stop := c.run(client)
		<-done
		c.hourly("last")
		c.active("last")
		stop()
		for len(events) > 0 {
			if event := <-events; strings.Contains(event, "Failed") {
				t.Error(event)
			}
		}
	})
}

// TestCronJobsRestart changes what there is while no controller runs.
func TestCronJobsRestart(t *testing.T) {
	t.Parallel()
	c := cronJobsAlone(t)
	_, stop := c.run(c.client)
	jobs := map[string]batchv1.Job{}
	for _, name := range []string{"done", "lost", "imitated", "recreated"} {
		c.hourly(name)
		jobs[name] = c.active(name)
	}
	stop()
	client := c.client.BatchV1()
	c.finish(new(jobs["done"]))
	for _, name := range []string{"lost", "imitated"} {
		workloadtest.OK(t, c.remove(t.Context(), jobs[name].Name, client.Jobs(c.namespace).Delete))
	}
	workloadtest.OK(t, c.imitate(t.Context(), new(jobs["imitated"])))
	workloadtest.OK(t, c.remove(t.Context(), "recreated", client.CronJobs(c.namespace).Delete))
	c.hourly("recreated")
	c.hourly("new")
	c.run(c.client)
	for _, name := range []string{"done", "lost", "imitated"} {
		c.await(name, "inactive", cronJobInactive)
	}
	c.await("done", "successful", func(cron *batchv1.CronJob) bool {
		return cron.Status.LastSuccessfulTime != nil
	})
	c.active("new")
	c.await("recreated", "active", func(cron *batchv1.CronJob) bool {
		return len(cron.Status.Active) == 1 && cron.Status.Active[0].UID != jobs["recreated"].UID
	})
	// The minutes of the Jobs that are gone are not made up for.
	c.jobs("done", "kept", cronJobsNumber(1))
	c.jobs("lost", "lost", cronJobsNumber(0))
	job := c.jobs("imitated", "of somebody else", cronJobsNumber(1))[0]
	if len(job.OwnerReferences) > 0 || job.DeletionTimestamp != nil {
		t.Errorf("the job of somebody else is %+v", job)
	}
}
