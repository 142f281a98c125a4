package looptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/batch/jobs"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// jobsPlay plays with a Job whose pods the test runs by hand.
type jobsPlay struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
}

func (p *jobsPlay) create(change func(*batchv1.JobSpec)) {
	p.Helper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "j"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "c", Image: "i"}},
		}}},
	}
	change(&job.Spec)
	workloadtest.Must(p.client.BatchV1().Jobs(p.namespace).Create(p.Context(), job,
		metav1.CreateOptions{}))(p)
}

// becomes waits until the status of the Job is as [jobsStatus] says.
func (p *jobsPlay) becomes(want string) {
	p.Helper()
	workloadtest.Until(p, func(ctx context.Context) string {
		job, err := p.client.BatchV1().Jobs(p.namespace).Get(ctx, "j", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if got := jobsStatus(&job.Status); got != want {
			return fmt.Sprintf("the status is %q, want %q", got, want)
		}
		return ""
	})
}

// jobsStatus returns what matters of a status, with the last condition that is true.
func jobsStatus(s *batchv1.JobStatus) string {
	var words []string
	count := func(name string, n int) {
		if n != 0 {
			words = append(words, fmt.Sprintf("%s=%d", name, n))
		}
	}
	count("active", int(s.Active))
	count("terminating", int(ptr.Deref(s.Terminating, 0)))
	count("succeeded", int(s.Succeeded))
	count("failed", int(s.Failed))
	if u := s.UncountedTerminatedPods; u != nil {
		count("uncounted", len(u.Succeeded)+len(u.Failed))
	}
	if s.CompletedIndexes != "" {
		words = append(words, "completed="+s.CompletedIndexes)
	}
	if list := ptr.Deref(s.FailedIndexes, ""); list != "" {
		words = append(words, "indexes-failed="+list)
	}
	if s.StartTime != nil {
		words = append(words, "started")
	}
	for _, c := range slices.Backward(s.Conditions) {
		if c.Status == corev1.ConditionTrue {
			words = append(words, string(c.Type)+":"+c.Reason)
			break
		}
	}
	return strings.Join(words, " ")
}

// pods waits until n pods of the Job are wanted and have not ended, and returns them.
func (p *jobsPlay) pods(n int, wanted func(*corev1.Pod) bool) []corev1.Pod {
	p.Helper()
	var pods []corev1.Pod
	workloadtest.Until(p, func(ctx context.Context) string {
		list, err := p.client.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		pods = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
			return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
				!wanted(&pod)
		})
		if len(pods) < n {
			return fmt.Sprintf("there are %d pods, want %d", len(pods), n)
		}
		return ""
	})
	return pods[:n]
}

func (p *jobsPlay) patch(pod *corev1.Pod, patch string, subresources ...string) {
	p.Helper()
	workloadtest.Must(p.client.CoreV1().Pods(p.namespace).Patch(p.Context(), pod.Name,
		types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...))(p)
}

func jobsRunning(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil }

func jobsTerminating(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil }

func jobsIndex(index string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		return jobsRunning(pod) && pod.Annotations[batchv1.JobCompletionIndexAnnotation] == index
	}
}

// jobsStep changes something, and says which status the Job comes to.
type jobsStep struct {
	do   func(*jobsPlay)
	want string
}

// jobsSet merges fields into the spec of the Job.
func jobsSet(format string, args ...any) func(*jobsPlay) {
	return func(p *jobsPlay) {
		p.Helper()
		workloadtest.Must(p.client.BatchV1().Jobs(p.namespace).Patch(p.Context(), "j",
			types.MergePatchType, fmt.Appendf(nil, `{"spec":{`+format+`}}`, args...),
			metav1.PatchOptions{}))(p)
	}
}

// jobsEnd has the first n wanted pods end with an exit code, long ago so that no back-off is left.
func jobsEnd(n int, wanted func(*corev1.Pod) bool, code int) func(*jobsPlay) {
	return func(p *jobsPlay) {
		p.Helper()
		phase := corev1.PodSucceeded
		if code != 0 {
			phase = corev1.PodFailed
		}
		for _, pod := range p.pods(n, wanted) {
			p.patch(&pod, fmt.Sprintf(`{"status":{"phase":%q,"containerStatuses":[{"name":"c",
				"image":"i","imageID":"i","state":{"terminated":{"exitCode":%d,
				"finishedAt":"2020-01-01T00:00:00Z"}}}]}}`, phase, code), "status")
		}
	}
}

// jobsDelete deletes one of the wanted pods, as a stranger.
func jobsDelete(wanted func(*corev1.Pod) bool) func(*jobsPlay) {
	return func(p *jobsPlay) {
		p.Helper()
		workloadtest.OK(p, p.client.CoreV1().Pods(p.namespace).Delete(p.Context(),
			p.pods(1, wanted)[0].Name, metav1.DeleteOptions{}))
	}
}

// jobsLetGo does what the kubelet of n pods would that are terminating.
func jobsLetGo(n int) func(*jobsPlay) {
	return func(p *jobsPlay) {
		p.Helper()
		for _, pod := range p.pods(n, jobsTerminating) {
			workloadtest.OK(p, p.client.CoreV1().Pods(p.namespace).Delete(p.Context(), pod.Name,
				metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
		}
	}
}

// TestJobsCountAsKubeControllerManager plays changes of Jobs and of their pods. The statuses are
// those of kube-controller-manager v1.36, with its default feature gates.
func TestJobsCountAsKubeControllerManager(t *testing.T) {
	t.Parallel()
	// The garbage collector of pods would deal with the pods on a node that does not exist.
	s, client := workloadtest.Run(t, []string{jobs.Name})
	size := func(parallelism, completions int32) func(*batchv1.JobSpec) {
		return func(s *batchv1.JobSpec) { s.Parallelism, s.Completions = &parallelism, &completions }
	}
	indexed := func(s *batchv1.JobSpec) { s.CompletionMode = new(batchv1.IndexedCompletion) }
	limit := func(n int32) func(*batchv1.JobSpec) {
		return func(s *batchv1.JobSpec) { s.BackoffLimit = &n }
	}
	perIndex := func(n int32) func(*batchv1.JobSpec) {
		return func(s *batchv1.JobSpec) { s.BackoffLimitPerIndex = &n }
	}
	// Pods on a node are terminating until its kubelet deletes them. There is no such node.
	bound := func(s *batchv1.JobSpec) { s.Template.Spec.NodeName = "nowhere" }
	replace := func(policy batchv1.PodReplacementPolicy) func(*batchv1.JobSpec) {
		return func(s *batchv1.JobSpec) { s.PodReplacementPolicy = &policy }
	}
	onCode := func(code int32, action batchv1.PodFailurePolicyAction) func(*batchv1.JobSpec) {
		return func(s *batchv1.JobSpec) {
			s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action: action,
				OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
					Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{code},
				},
			}}}
		}
	}
	succeed := func(rule batchv1.SuccessPolicyRule) func(*batchv1.JobSpec) {
		return func(s *batchv1.JobSpec) {
			s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{rule}}
		}
	}
	of := func(changes ...func(*batchv1.JobSpec)) []func(*batchv1.JobSpec) { return changes }
	suspend, resume := jobsSet(`"suspend":true`), jobsSet(`"suspend":false`)
	suspended := func(s *batchv1.JobSpec) { s.Suspend = new(true) }
	const (
		isSuspended = "Suspended:JobSuspended"
		isComplete  = "Complete:CompletionsReached"
	)
	for name, test := range map[string]struct {
		spec  []func(*batchv1.JobSpec)
		start string
		steps []jobsStep
	}{
		"suspended and resumed": {of(size(8, 8), limit(0)), "active=8 started", []jobsStep{
			{suspend, isSuspended},
			{resume, "active=8 started"},
			{jobsEnd(8, jobsRunning, 0), "succeeded=8 started " + isComplete},
		}},
		"suspended half-way": {of(size(2, 4), indexed, limit(0)), "active=2 started", []jobsStep{
			{jobsEnd(1, jobsIndex("1"), 0), "active=2 succeeded=1 completed=1 started"},
			{suspend, "succeeded=1 completed=1 " + isSuspended},
			{resume, "active=2 succeeded=1 completed=1 started"},
			{jobsEnd(2, jobsRunning, 0), "active=1 succeeded=3 completed=0-2 started"},
			{jobsEnd(1, jobsRunning, 0), "succeeded=4 completed=0-3 started " + isComplete},
		}},
		"suspended while pods fail": {of(size(2, 2), limit(1)), "active=2 started", []jobsStep{
			{jobsEnd(1, jobsRunning, 1), "active=2 failed=1 started"},
			{suspend, "failed=1 " + isSuspended},
			{resume, "active=2 failed=1 started"},
			{jobsEnd(1, jobsRunning, 1), "failed=3 started Failed:BackoffLimitExceeded"},
		}},
		"suspended, pods are slow": {of(size(2, 2), limit(0), bound), "active=2 started", []jobsStep{
			{suspend, "terminating=2 " + isSuspended},
			{resume, "active=2 terminating=2 started"},
			{jobsLetGo(2), "active=2 started"},
		}},
		"suspended, replaced when gone": {
			of(size(2, 2), indexed, limit(0), bound, replace(batchv1.Failed)), "active=2 started",
			[]jobsStep{
				{suspend, "terminating=2 " + isSuspended},
				{resume, "terminating=2 started"},
				{jobsLetGo(2), "active=2 started"},
			},
		},
		"created suspended": {of(size(2, 2), suspended), isSuspended, []jobsStep{
			{resume, "active=2 started"},
		}},
		"suspended, without work": {of(size(2, 0), suspended), isComplete, nil},
		"scaled down and up": {of(size(8, 8), limit(0)), "active=8 started", []jobsStep{
			{jobsSet(`"parallelism":2`), "active=2 started"},
			{jobsSet(`"parallelism":0`), "started"},
			{jobsSet(`"parallelism":8`), "active=8 started"},
			{jobsEnd(8, jobsRunning, 0), "succeeded=8 started " + isComplete},
		}},
		"elastic": {of(size(4, 4), indexed, limit(0)), "active=4 started", []jobsStep{
			{jobsEnd(1, jobsIndex("3"), 0), "active=3 succeeded=1 completed=3 started"},
			{jobsSet(`"parallelism":2,"completions":2`), "active=2 started"},
			{jobsSet(`"parallelism":3,"completions":3`), "active=3 started"},
			{jobsEnd(3, jobsRunning, 0), "succeeded=3 completed=0-2 started " + isComplete},
		}},
		"work queue": {
			of(func(s *batchv1.JobSpec) { s.Parallelism = new(int32(3)) }, limit(0)), "active=3 started",
			[]jobsStep{
				{jobsEnd(1, jobsRunning, 0), "active=2 succeeded=1 started"},
				{jobsSet(`"parallelism":1`), "active=2 succeeded=1 started"},
				{jobsEnd(2, jobsRunning, 0), "succeeded=3 started " + isComplete},
			},
		},
		"deleted by others": {of(size(2, 2), limit(1)), "active=2 started", []jobsStep{
			{jobsDelete(jobsRunning), "active=1 failed=1 started"}, // backs off
			{jobsDelete(jobsRunning), "failed=2 started Failed:BackoffLimitExceeded"},
		}},
		"deleted by others, replaced when failed": {
			of(size(2, 2), limit(0), replace(batchv1.Failed)), "active=2 started",
			[]jobsStep{
				{jobsDelete(jobsRunning), "active=1 terminating=1 started"},
				{
					jobsEnd(1, jobsTerminating, 1),
					"failed=2 started Failed:BackoffLimitExceeded",
				},
			},
		},
		"deleted by others, by index": {of(size(2, 2), indexed, perIndex(1)), "active=2 started",
			[]jobsStep{{jobsDelete(jobsIndex("0")), "active=1 terminating=1 started"}}},
		"deleted by others, others wait": {of(size(1, 2), indexed, perIndex(1)), "active=1 started",
			[]jobsStep{{jobsDelete(jobsIndex("0")), "terminating=1 started"}}}, // backs off
		"deleted by others, index fails": {of(size(2, 2), indexed, perIndex(0)), "active=2 started",
			[]jobsStep{
				{jobsDelete(jobsIndex("0")), "active=1 failed=1 indexes-failed=0 started"},
				{
					jobsEnd(1, jobsIndex("1"), 0),
					"succeeded=1 failed=1 completed=1 indexes-failed=0 started Failed:FailedIndexes",
				},
			}},
		"success policy": {of(size(3, 3), indexed, succeed(batchv1.SuccessPolicyRule{
			SucceededIndexes: new("1"),
		})), "active=3 started", []jobsStep{
			{jobsEnd(1, jobsIndex("1"), 0), "succeeded=1 completed=1 started Complete:SuccessPolicy"},
		}},
		"success policy, pods are slow": {of(size(3, 3), indexed, bound,
			succeed(batchv1.SuccessPolicyRule{SucceededCount: new(int32(1))})), "active=3 started",
			[]jobsStep{
				{
					jobsEnd(1, jobsIndex("1"), 0),
					"terminating=2 succeeded=1 completed=1 started SuccessCriteriaMet:SuccessPolicy",
				},
				{jobsLetGo(2), "succeeded=1 completed=1 started Complete:SuccessPolicy"},
			}},
		"fails with all pods": {of(size(3, 3), limit(0), bound), "active=3 started", []jobsStep{
			{
				jobsEnd(1, jobsRunning, 1),
				"terminating=2 failed=3 started FailureTarget:BackoffLimitExceeded",
			},
			{jobsLetGo(2), "failed=3 started Failed:BackoffLimitExceeded"},
		}},
		"failure policy fails the Job": {of(size(2, 2), bound,
			onCode(42, batchv1.PodFailurePolicyActionFailJob)), "active=2 started", []jobsStep{
			{jobsEnd(1, jobsRunning, 42), "terminating=1 failed=2 started FailureTarget:PodFailurePolicy"},
			{jobsLetGo(1), "failed=2 started Failed:PodFailurePolicy"},
		}},
		"failure policy ignores": {of(size(2, 2), limit(0),
			onCode(3, batchv1.PodFailurePolicyActionIgnore)), "active=2 started", []jobsStep{
			{jobsEnd(2, jobsRunning, 3), "active=2 started"},
			{jobsEnd(2, jobsRunning, 0), "succeeded=2 started " + isComplete},
		}},
		"failure policy fails the index": {of(size(2, 2), indexed, perIndex(5),
			onCode(3, batchv1.PodFailurePolicyActionFailIndex)), "active=2 started", []jobsStep{
			{jobsEnd(1, jobsIndex("1"), 3), "active=1 failed=1 indexes-failed=1 started"},
			{suspend, "failed=1 indexes-failed=1 " + isSuspended},
			{resume, "active=1 failed=1 indexes-failed=1 started"},
		}},
		"too many failed indexes": {of(size(3, 3), indexed, perIndex(0), func(s *batchv1.JobSpec) {
			s.MaxFailedIndexes = new(int32(1))
		}), "active=3 started", []jobsStep{
			{jobsEnd(1, jobsIndex("0"), 1), "active=2 failed=1 indexes-failed=0 started"},
			{
				jobsEnd(1, jobsIndex("2"), 1),
				"failed=3 indexes-failed=0,2 started Failed:MaxFailedIndexesExceeded",
			},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &jobsPlay{t, client, servertest.Namespace(t, s)}
			p.create(func(s *batchv1.JobSpec) {
				for _, change := range test.spec {
					change(s)
				}
			})
			p.becomes(test.start)
			for _, step := range test.steps {
				step.do(p)
				p.becomes(step.want)
			}
		})
	}
}

// TestJobsChangeWhileSuspended gives a Job that has already run other resources, and another node.
func TestJobsChangeWhileSuspended(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	p := &jobsPlay{t, client, namespace}
	p.create(func(*batchv1.JobSpec) {})
	p.becomes("active=1 started")
	jobsSet(`"suspend":true`)(p)
	p.becomes("Suspended:JobSuspended")
	jobsSet(`"template":{"spec":{"nodeSelector":{"a":"b"},"containers":[{"name":"c","image":"i",
		"resources":{"requests":{"cpu":"7"}}}]}}`)(p)
	jobsSet(`"suspend":false`)(p)
	p.becomes("active=1 started")
	pod := p.pods(1, jobsRunning)[0]
	if cpu := pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]; !cpu.Equal(
		resource.MustParse("7")) || pod.Spec.NodeSelector["a"] != "b" {
		t.Errorf("the pod is not as the Job is now: %+v", pod.Spec)
	}
}
