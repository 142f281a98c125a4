package looptest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/batch/jobs"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// jobsCluster is a control plane. In one of its namespaces, the test runs the pods by hand.
type jobsCluster struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
}

func jobsShared(t *testing.T) jobsCluster {
	t.Helper()
	client, namespace := shared(t)
	return jobsCluster{t, client, namespace}
}

func (c jobsCluster) create(name string, change func(*batchv1.JobSpec)) {
	c.Helper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy:                corev1.RestartPolicyNever,
			AutomountServiceAccountToken: new(false),
			Containers:                   []corev1.Container{{Name: "c", Image: "i"}},
		}}},
	}
	if change != nil {
		change(&job.Spec)
	}
	_, err := c.client.BatchV1().Jobs(c.namespace).Create(c.Context(), job, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
}

// eventually waits until check accepts a Job.
func (c jobsCluster) eventually(name, what string, check func(*batchv1.Job) bool) *batchv1.Job {
	c.Helper()
	return workloadtest.Await(c.T, name+" "+what, func(ctx context.Context) (*batchv1.Job, error) {
		return c.client.BatchV1().Jobs(c.namespace).Get(ctx, name, metav1.GetOptions{})
	}, check)
}

// ends waits until a Job has ended with a condition and a reason.
func (c jobsCluster) ends(name string, with batchv1.JobConditionType, reason string) *batchv1.Job {
	c.Helper()
	return c.eventually(name, string(with), func(job *batchv1.Job) bool {
		return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == with && c.Status == corev1.ConditionTrue && c.Reason == reason
		})
	})
}

// pods waits until a Job has n pods that have not ended, and returns them.
func (c jobsCluster) pods(job string, n int) []corev1.Pod {
	c.Helper()
	return workloadtest.Await(c.T, fmt.Sprintf("%d active pods of %s", n, job),
		func(ctx context.Context) ([]corev1.Pod, error) {
			list, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{
				LabelSelector: batchv1.JobNameLabel + "=" + job,
			})
			if err != nil {
				return nil, err
			}
			return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
				return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed ||
					p.DeletionTimestamp != nil
			}), nil
		}, func(active []corev1.Pod) bool { return len(active) == n })
}

// finish has a pod end with an exit code.
func (c jobsCluster) finish(pod string, code int) {
	c.Helper()
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	// A failure long ago is not waited for.
	_, err := c.client.CoreV1().Pods(c.namespace).Patch(c.Context(), pod,
		types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{"phase":%q,"containerStatuses":[{
			"name":"c","image":"i","imageID":"i","state":{"terminated":{"exitCode":%d,
			"finishedAt":"2020-01-01T00:00:00Z"}}}]}}`, phase, code), metav1.PatchOptions{}, "status")
	if err != nil {
		c.Fatal(err)
	}
}

// released checks that no pod of a Job has its finalizer any more.
func (c jobsCluster) released(job string) {
	c.Helper()
	list, err := c.client.CoreV1().Pods(c.namespace).List(c.Context(), metav1.ListOptions{
		LabelSelector: batchv1.JobNameLabel + "=" + job,
	})
	if err != nil {
		c.Fatal(err)
	}
	for _, pod := range list.Items {
		if len(pod.Finalizers) > 0 {
			c.Errorf("%s has the finalizers %v", pod.Name, pod.Finalizers)
		}
	}
}

func TestJobComplete(t *testing.T) {
	t.Parallel()
	c := jobsShared(t)
	c.create("j", func(s *batchv1.JobSpec) {
		s.Completions, s.Parallelism = new(int32(5)), new(int32(2))
	})
	for done := 0; done < 5; {
		n := min(2, 5-done)
		for _, pod := range c.pods("j", n) {
			if !slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer) {
				t.Errorf("finalizers of %s: %v", pod.Name, pod.Finalizers)
			}
			c.finish(pod.Name, 0)
			done++
		}
	}
	job := c.ends("j", batchv1.JobComplete, batchv1.JobReasonCompletionsReached)
	if s := job.Status; s.Succeeded != 5 || s.Failed != 0 || s.Active != 0 || s.StartTime == nil ||
		s.CompletionTime == nil || ptr.Deref(s.Ready, -1) != 0 || ptr.Deref(s.Terminating, -1) != 0 {
		t.Errorf("unexpected status: %+v", s)
	}
	c.released("j")
	c.event("j", "Completed")
}

// event waits for an event about a Job.
func (c jobsCluster) event(job, reason string) {
	c.Helper()
	workloadtest.AwaitEvent(c.T, c.client, c.namespace, job, reason)
}

func TestJobFailures(t *testing.T) {
	t.Parallel()
	c := jobsShared(t)
	c.create("limit", func(s *batchv1.JobSpec) { s.BackoffLimit = new(int32(1)) })
	for range 2 {
		c.finish(c.pods("limit", 1)[0].Name, 1)
	}
	if job := c.ends("limit", batchv1.JobFailed,
		batchv1.JobReasonBackoffLimitExceeded); job.Status.Failed != 2 {
		t.Errorf("%d failed", job.Status.Failed)
	}
	c.released("limit")
	c.event("limit", batchv1.JobReasonBackoffLimitExceeded)

	c.create("deadline", func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = new(int64(1)) })
	c.ends("deadline", batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
	c.pods("deadline", 0)

	c.create("policy", func(s *batchv1.JobSpec) {
		s.BackoffLimit = new(int32(0))
		s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
			{
				Action: batchv1.PodFailurePolicyActionIgnore,
				OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
					Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{3},
				},
			},
			{
				Action: batchv1.PodFailurePolicyActionFailJob,
				OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
					Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42},
				},
			},
		}}
	})
	c.finish(c.pods("policy", 1)[0].Name, 3)
	c.finish(c.pods("policy", 1)[0].Name, 42)
	if job := c.ends("policy", batchv1.JobFailed,
		batchv1.JobReasonPodFailurePolicy); job.Status.Failed != 1 {
		t.Errorf("%d failed, want 1 because one failure is ignored", job.Status.Failed)
	}
}

// TestJobFailsByPolicyLater has a Job that fails because of a pod, and lets the first request to
// delete its other pod fail.
func TestJobFailsByPolicyLater(t *testing.T) {
	t.Parallel()
	s, client := workloadtest.Alone(t)
	var refused atomic.Bool
	config := s.RESTConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return workloadtest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodDelete && refused.CompareAndSwap(false, true) {
				return nil, errors.New("the connection is broken")
			}
			return next.RoundTrip(r)
		})
	})
	d, _ := workloadtest.Dependencies(workloadtest.Must(kubernetes.NewForConfig(config))(t))
	workloadtest.Start(t, d, jobs.Loop())
	c := jobsCluster{t, client, workloadtest.Namespace}
	c.create("j", func(s *batchv1.JobSpec) {
		s.Completions, s.Parallelism = new(int32(2)), new(int32(2))
		s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action: batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42},
			},
		}}}
	})
	c.finish(c.pods("j", 2)[0].Name, 42)
	if job := c.ends("j", batchv1.JobFailed,
		batchv1.JobReasonPodFailurePolicy); job.Status.Failed != 2 {
		t.Errorf("%d failed, want 2", job.Status.Failed)
	}
	if !refused.Load() {
		t.Error("nothing was refused")
	}
}

func TestIndexedJob(t *testing.T) {
	t.Parallel()
	c := jobsShared(t)
	indexed := func(s *batchv1.JobSpec) {
		s.CompletionMode = new(batchv1.IndexedCompletion)
		s.Completions, s.Parallelism = new(int32(4)), new(int32(4))
	}
	index := func(p corev1.Pod) string { return p.Annotations[batchv1.JobCompletionIndexAnnotation] }
	c.create("all", indexed)
	seen := map[string]bool{}
	for _, pod := range c.pods("all", 4) {
		seen[index(pod)] = true
		if pod.Spec.Hostname != "all-"+index(pod) || pod.Labels[batchv1.JobCompletionIndexAnnotation] !=
			index(pod) || pod.Spec.Containers[0].Env[0].Name != "JOB_COMPLETION_INDEX" {
			t.Errorf("unexpected pod: %+v", pod)
		}
		c.finish(pod.Name, 0)
	}
	job := c.ends("all", batchv1.JobComplete, batchv1.JobReasonCompletionsReached)
	if len(seen) != 4 || job.Status.CompletedIndexes != "0-3" || job.Status.Succeeded != 4 {
		t.Errorf("indexes %v: %+v", seen, job.Status)
	}

	c.create("per-index", func(s *batchv1.JobSpec) {
		indexed(s)
		s.BackoffLimitPerIndex, s.MaxFailedIndexes = new(int32(1)), new(int32(4))
	})
	for _, pod := range c.pods("per-index", 4) {
		code := 0
		if index(pod) == "2" {
			code = 1
		}
		c.finish(pod.Name, code)
	}
	again := c.pods("per-index", 1)[0]
	if index(again) != "2" || again.Annotations[batchv1.JobIndexFailureCountAnnotation] != "1" {
		t.Errorf("replaced by %v", again.Annotations)
	}
	c.finish(again.Name, 1)
	job = c.ends("per-index", batchv1.JobFailed, batchv1.JobReasonFailedIndexes)
	if job.Status.CompletedIndexes != "0,1,3" || ptr.Deref(job.Status.FailedIndexes, "") != "2" ||
		job.Status.Failed != 2 {
		t.Errorf("unexpected status: %+v", job.Status)
	}
	c.released("per-index")

	c.create("success", func(s *batchv1.JobSpec) {
		indexed(s)
		s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{
			{SucceededIndexes: new("0,3")},
		}}
	})
	for _, pod := range c.pods("success", 4) {
		if index(pod) == "0" || index(pod) == "3" {
			c.finish(pod.Name, 0)
		}
	}
	job = c.ends("success", batchv1.JobComplete, batchv1.JobReasonSuccessPolicy)
	if job.Status.CompletedIndexes != "0,3" {
		t.Errorf("unexpected status: %+v", job.Status)
	}
	c.pods("success", 0)
}

func TestSuspendedJob(t *testing.T) {
	t.Parallel()
	c := jobsShared(t)
	suspend := func(is bool) {
		t.Helper()
		_, err := c.client.BatchV1().Jobs(c.namespace).Patch(t.Context(), "j", types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, is), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	is := func(status corev1.ConditionStatus) func(*batchv1.Job) bool {
		return func(job *batchv1.Job) bool {
			return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
				return c.Type == batchv1.JobSuspended && c.Status == status
			})
		}
	}
	c.create("j", func(s *batchv1.JobSpec) { s.Suspend, s.Parallelism = new(true), new(int32(3)) })
	job := c.eventually("j", "suspended", is(corev1.ConditionTrue))
	if job.Status.StartTime != nil {
		t.Errorf("started at %v", job.Status.StartTime)
	}
	suspend(false)
	c.pods("j", 3)
	c.eventually("j", "resumed", func(job *batchv1.Job) bool {
		return is(corev1.ConditionFalse)(job) && job.Status.StartTime != nil && job.Status.Active == 3
	})
	suspend(true)
	c.pods("j", 0)
	c.eventually("j", "suspended again", func(job *batchv1.Job) bool {
		return is(corev1.ConditionTrue)(job) && job.Status.Active == 0
	})
}

// TestJobsRestart stops the control plane while some pods have ended that were not counted.
func TestJobsRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(configure ...func(*server.Options)) (*server.Server, jobsCluster) {
		t.Helper()
		s, client := workloadtest.Run(t, []string{jobs.Name}, append(configure,
			func(o *server.Options) { o.DataDir = dir })...)
		return s, jobsCluster{t, client, workloadtest.Namespace}
	}
	s, c := run()
	const n = 30
	c.create("j", func(s *batchv1.JobSpec) {
		s.Completions, s.Parallelism = new(int32(n)), new(int32(n))
	})
	list := c.pods("j", n)
	for _, pod := range list[:n/2] {
		c.finish(pod.Name, 0)
	}
	workloadtest.OK(t, s.Stop(t.Context()))
	s, c = run(servertest.WithoutControllers)
	for _, pod := range list[n/2:] {
		c.finish(pod.Name, 0)
	}
	workloadtest.OK(t, s.Stop(t.Context()))
	_, c = run()
	job := c.ends("j", batchv1.JobComplete, batchv1.JobReasonCompletionsReached)
	if job.Status.Succeeded != n || job.Status.Failed != 0 {
		t.Errorf("unexpected status: %+v", job.Status)
	}
	c.released("j")
}

// TestJobRecreated deletes a Job whose pods run, and creates another one with its name.
func TestJobRecreated(t *testing.T) {
	t.Parallel()
	c := jobsShared(t)
	three := func(s *batchv1.JobSpec) { s.Parallelism = new(int32(3)) }
	c.create("j", three)
	old := c.pods("j", 3)
	if err := c.client.BatchV1().Jobs(c.namespace).Delete(t.Context(), "j", metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	}); err != nil {
		t.Fatal(err)
	}
	c.create("j", three)
	workloadtest.Until(t, func(ctx context.Context) string {
		for _, pod := range old {
			_, err := c.client.CoreV1().Pods(c.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return fmt.Sprintf("the pod %s of the first Job remains: %v", pod.Name, err)
			}
		}
		return ""
	})
	for _, pod := range c.pods("j", 3) {
		c.finish(pod.Name, 0)
	}
	if job := c.ends("j", batchv1.JobComplete,
		batchv1.JobReasonCompletionsReached); job.Status.Succeeded != 3 || job.Status.Failed != 0 {
		t.Errorf("unexpected status: %+v", job.Status)
	}
}
