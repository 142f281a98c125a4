package batch

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

// job applies a change to a valid job and prepares it for creation.
func job(t *testing.T, change func(*batchv1.Job)) *batchv1.Job {
	k := Jobs()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "u"}}
	j.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "c", Image: "i"}},
	}
	if change != nil {
		change(j)
	}
	k.Default(j)
	k.PrepareCreate(t.Context(), j)
	return j
}

func indexed(completions int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.Completions, j.Spec.CompletionMode = &completions, new(batchv1.IndexedCompletion)
		j.Spec.BackoffLimitPerIndex = new(int32(1))
	}
}

func expect(t *testing.T, name string, errs field.ErrorList, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := kindtest.Causes(errs); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

// TestJobsAreLabelledAsTheirPods checks that jobs created without labels get the labels of their
// pods.
func TestJobsAreLabelledAsTheirPods(t *testing.T) {
	t.Parallel()
	j := job(t, func(j *batchv1.Job) { j.Spec.Template.Labels = map[string]string{"a": "b"} })
	if want := 1 + len(podLabels(j)); len(j.Labels) != want || len(j.Spec.Template.Labels) != want {
		t.Errorf("got labels %v on the job and %v on its pods, want %d each",
			j.Labels, j.Spec.Template.Labels, want)
	}
}

func TestNewJobs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*batchv1.Job)
		want   []string
	}{
		"valid": {nil, nil},
		"always restarted": {
			func(j *batchv1.Job) { j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways },
			[]string{"spec.template.spec.restartPolicy Required"},
		},
		"label of another job": {
			func(j *batchv1.Job) { j.Spec.Template.Labels = map[string]string{legacyNameLabel: "y"} },
			[]string{"spec.template.metadata.labels[job-name] Invalid"},
		},
		"hostname too long": {func(j *batchv1.Job) {
			indexed(101)(j)
			j.Name = strings.Repeat("j", 60)
		}, []string{"metadata.name Invalid"}},
		"managed by nobody": {func(j *batchv1.Job) {
			j.Spec.ManagedBy = new("me")
		}, []string{"spec.managedBy Invalid"}},
		"many completions": {
			func(j *batchv1.Job) { indexed(200_000)(j); j.Spec.Parallelism = new(int32(20_000)) },
			[]string{"spec.maxFailedIndexes Required", "spec.parallelism Invalid"},
		},
		"success without rules": {
			func(j *batchv1.Job) { indexed(3)(j); j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{} },
			[]string{"spec.successPolicy.rules Required"},
		},
		"success of too many": {func(j *batchv1.Job) {
			indexed(9)(j)
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{
				{SucceededIndexes: new("0-2,5"), SucceededCount: new(int32(5))}, {SucceededIndexes: new("2-1")},
				{}}}
		}, []string{
			"spec.successPolicy.rules[0].succeededCount Invalid",
			"spec.successPolicy.rules[1].succeededIndexes Invalid", "spec.successPolicy.rules[2] Required",
		}},
		"exit codes": {func(j *batchv1.Job) {
			j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
				{
					Action: batchv1.PodFailurePolicyActionFailIndex,
					OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
						ContainerName: new("d"),
						Operator:      batchv1.PodFailurePolicyOnExitCodesOpNotIn,
						Values:        []int32{3, 1, 3},
					},
				},
				{Action: batchv1.PodFailurePolicyActionCount}}}
		}, []string{
			"spec.podFailurePolicy.rules[0].action Invalid",
			"spec.podFailurePolicy.rules[0].onExitCodes.containerName Invalid",
			"spec.podFailurePolicy.rules[0].onExitCodes.values Invalid",
			"spec.podFailurePolicy.rules[0].onExitCodes.values[2] Duplicate",
			"spec.podFailurePolicy.rules[1] Invalid",
		}},
	} {
		expect(t, name, validateJob(job(t, c.change), nil), c.want...)
	}
}

func TestChangedJobs(t *testing.T) {
	t.Parallel()
	k := Jobs()
	schedule := func(j *batchv1.Job) {
		j.Spec.Template.Spec.NodeSelector = map[string]string{"a": "b"}
	}
	suspended := job(t, func(j *batchv1.Job) { j.Spec.Suspend = new(true) })
	busy := suspended.DeepCopy()
	busy.Status.Active = 1
	for name, c := range map[string]struct {
		old    *batchv1.Job
		change func(*batchv1.Job)
		want   []string
	}{
		"scheduling of a running job": {
			job(t, nil), schedule, []string{"spec.template Invalid"},
		},
		"scheduling of a suspended job": {suspended, schedule, nil},
		"with pods":                     {busy, schedule, []string{"spec.template Invalid"}},
		"metadata of the pods of a suspended job": {suspended, func(j *batchv1.Job) {
			j.Spec.Template.Name = "n"
		}, nil},
		"image of a suspended job": {
			suspended, func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Image = "j" },
			[]string{"spec.template.spec Invalid"},
		},
		"resources of a suspended job": {suspended, func(j *batchv1.Job) {
			j.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1"),
			}
		}, nil},
		"labels of the pods": {job(t, nil), func(j *batchv1.Job) {
			j.Spec.Template.Labels[batchv1.JobNameLabel] = "other"
		}, []string{"spec.template Invalid"}},
		"completions": {job(t, nil), func(j *batchv1.Job) {
			j.Spec.Completions = new(int32(9))
		}, []string{"spec.completions Invalid"}},
		"elastic, alone": {
			job(t, indexed(3)), func(j *batchv1.Job) { j.Spec.Completions = new(int32(9)) },
			[]string{"spec.completions Invalid"},
		},
		"manager": {job(t, nil), func(j *batchv1.Job) {
			j.Spec.ManagedBy = new("a.b/c")
		}, []string{"spec.managedBy Invalid"}},
	} {
		j := c.old.DeepCopy()
		c.change(j)
		expect(t, name, k.ValidateUpdate(t.Context(), j, c.old), c.want...)
	}
}

func TestJobStatus(t *testing.T) {
	t.Parallel()
	conditions := func(types ...batchv1.JobConditionType) []batchv1.JobCondition {
		var list []batchv1.JobCondition
		for _, c := range types {
			list = append(list, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue})
		}
		return list
	}
	now := metav1.Now()
	then := metav1.NewTime(now.Add(-time.Hour))
	for name, c := range map[string]struct {
		old, status batchv1.JobStatus
		want        []string
	}{
		"running": {status: batchv1.JobStatus{StartTime: &now, Active: 2, Ready: new(int32(1))}},
		"complete": {status: batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1,
			Conditions: conditions(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)}},
		"bare complete": {
			status: batchv1.JobStatus{Active: 1, Conditions: conditions(batchv1.JobComplete)},
			want: []string{
				"status.conditions Invalid", "status.completionTime Required", "status.startTime Required",
				"status.active Invalid",
			},
		},
		"failed, no longer": {
			old: batchv1.JobStatus{
				StartTime:  &now,
				Conditions: conditions(batchv1.JobFailureTarget, batchv1.JobFailed),
			},
			status: batchv1.JobStatus{StartTime: &now},
			want:   []string{"status.conditions Invalid"},
		},
		"backwards": {
			old:    batchv1.JobStatus{Failed: 2, Succeeded: 2, StartTime: &now},
			status: batchv1.JobStatus{},
			want: []string{
				"status.failed Invalid", "status.succeeded Invalid", "status.startTime Invalid",
			},
		},
		"resumed": {
			old: batchv1.JobStatus{StartTime: &then, Conditions: conditions(batchv1.JobSuspended)},
			status: batchv1.JobStatus{StartTime: &now, Conditions: []batchv1.JobCondition{
				{Type: batchv1.JobSuspended, Status: corev1.ConditionFalse},
			}},
		},
		"started anew": {
			old:    batchv1.JobStatus{StartTime: &then},
			status: batchv1.JobStatus{StartTime: &now},
			want:   []string{"status.startTime Invalid"},
		},
		"overlap": {
			status: batchv1.JobStatus{CompletedIndexes: "0-2", FailedIndexes: new("2")},
			want:   []string{"status.failedIndexes Invalid"},
		},
		"beyond": {
			status: batchv1.JobStatus{CompletedIndexes: "0-9"},
			want:   []string{"status.completedIndexes Invalid"},
		},
		"ready": {
			status: batchv1.JobStatus{Ready: new(int32(1))},
			want:   []string{"status.ready Invalid"},
		},
	} {
		j := job(t, indexed(5))
		old := j.DeepCopy()
		j.Status, old.Status = c.status, c.old
		expect(t, name, validateJobStatus(j, old), c.want...)
	}
	never := job(t, func(j *batchv1.Job) {
		indexed(0)(j)
		j.Spec.Suspend = new(true)
	})
	old := never.DeepCopy()
	never.Status = batchv1.JobStatus{CompletionTime: &now,
		Conditions: conditions(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)}
	expect(t, "complete without a start", validateJobStatus(never, old))
}

func TestCronJobs(t *testing.T) {
	t.Parallel()
	k := CronJobs()
	cronJob := func(change func(*batchv1.CronJob)) *batchv1.CronJob {
		c := &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Name: "x"},
			Spec:       batchv1.CronJobSpec{Schedule: "* * * * *"},
		}
		c.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "c", Image: "i"}},
		}
		if change != nil {
			change(c)
		}
		k.Default(c)
		return c
	}
	for name, c := range map[string]struct {
		change func(*batchv1.CronJob)
		want   []string
	}{
		"valid": {func(c *batchv1.CronJob) { c.Spec.TimeZone = new("Europe/Berlin") }, nil},
		"no schedule": {func(c *batchv1.CronJob) {
			c.Spec.Schedule = ""
		}, []string{"spec.schedule Required"}},
		"zone and no more": {func(c *batchv1.CronJob) {
			c.Spec.Schedule = "TZ=UTC"
		}, []string{"spec.schedule Invalid"}},
		"zone in schedule": {func(c *batchv1.CronJob) {
			c.Spec.Schedule = "TZ=UTC * * * * *"
		}, []string{"spec.schedule Invalid"}},
		"empty zone": {func(c *batchv1.CronJob) {
			c.Spec.TimeZone = new("")
		}, []string{"spec.timeZone Invalid"}},
		"path of a zone": {func(c *batchv1.CronJob) {
			c.Spec.TimeZone = new("../UTC")
		}, []string{"spec.timeZone Invalid"}},
		"no such zone": {func(c *batchv1.CronJob) {
			c.Spec.TimeZone = new("Europe/Nowhere")
		}, []string{"spec.timeZone Invalid"}},
		"selector": {func(c *batchv1.CronJob) {
			c.Spec.JobTemplate.Spec.Selector = &metav1.LabelSelector{}
		}, []string{"spec.jobTemplate.spec.selector Invalid"}},
		"template of a job": {func(c *batchv1.CronJob) {
			c.Spec.JobTemplate.Spec.BackoffLimit = new(int32(-1))
		}, []string{"spec.jobTemplate.spec.backoffLimit Invalid"}},
	} {
		expect(t, name, k.Validate(t.Context(), cronJob(c.change)), c.want...)
	}
	old := cronJob(func(c *batchv1.CronJob) {
		c.Spec.Schedule = "TZ=UTC * * * * *"
		c.Name = strings.Repeat("c", 60)
	})
	expect(t, "created before the rules existed", k.ValidateUpdate(t.Context(), old.DeepCopy(), old))
}
