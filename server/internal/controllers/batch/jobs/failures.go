package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// The delay before a pod that failed is replaced, which doubles with each failure, as in
// kube-controller-manager.
const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 10 * time.Minute
)

// backoff is how often pods have failed since the last success.
type backoff struct {
	failures int
	last     time.Time
}

// with returns the backoff after some more pods have ended.
func (b backoff) with(ended []*corev1.Pod, now time.Time) backoff {
	ended = slices.Clone(ended)
	// A failure counts only if it comes after a success, and not in the same second.
	slices.SortStableFunc(ended, func(x, y *corev1.Pod) int {
		return cmp.Or(endOf(x).Compare(endOf(y)), cmp.Compare(succeeds(x), succeeds(y)))
	})
	for _, pod := range ended {
		if pod.Status.Phase == corev1.PodSucceeded {
			b = backoff{}
		} else {
			b = backoff{b.failures + 1, loop.Seen(endOf(pod), now)}
		}
	}
	return b
}

func succeeds(pod *corev1.Pod) int {
	if pod.Status.Phase == corev1.PodSucceeded {
		return 1
	}
	return 0
}

// remaining returns how long to wait before the next pod is created.
func (b backoff) remaining(now time.Time) time.Duration {
	if b.failures == 0 {
		return 0
	}
	delay := maxBackoff
	if b.failures <= 6 {
		delay = firstBackoff << (b.failures - 1)
	}
	return max(loop.Left(b.last, min(delay, maxBackoff), now), 0)
}

// endOf returns when a pod ended, as far as it says so.
func endOf(pod *corev1.Pod) time.Time {
	var end time.Time
	for _, c := range slices.Concat(pod.Status.ContainerStatuses, sidecars(pod)) {
		if c.State.Terminated == nil || c.State.Terminated.FinishedAt.IsZero() {
			end = time.Time{}
			break
		}
		if at := c.State.Terminated.FinishedAt.Time; at.After(end) {
			end = at
		}
	}
	if !end.IsZero() {
		return end
	}
	if c := pods.Condition(&pod.Status, corev1.PodReady); c != nil &&
		c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if pod.DeletionTimestamp != nil {
		grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
		return pod.DeletionTimestamp.Add(-grace)
	}
	return pod.CreationTimestamp.Time
}

// sidecars returns the statuses of the init containers that go on until the pod ends.
func sidecars(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.DeleteFunc(slices.Clone(pod.Status.InitContainerStatuses),
		func(s corev1.ContainerStatus) bool {
			return !slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
				return c.Name == s.Name &&
					ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
			})
		})
}

// verdict is what a pod failure policy says about a failed pod.
type verdict struct {
	action  batchv1.PodFailurePolicyAction // Count unless a rule matches
	message string                         // why the Job fails, if it does
}

// verdictOf applies the pod failure policy of a Job to a failed pod.
func verdictOf(job *batchv1.Job, pod *corev1.Pod) verdict {
	if job.Spec.PodFailurePolicy == nil {
		return verdict{action: batchv1.PodFailurePolicyActionCount}
	}
	for n, rule := range job.Spec.PodFailurePolicy.Rules {
		why := ""
		if rule.OnExitCodes != nil {
			why = exitCode(rule.OnExitCodes, pod)
		} else {
			why = conditionOf(rule.OnPodConditions, pod)
		}
		if why != "" {
			return verdict{rule.Action, fmt.Sprintf("%s matching %v rule at index %d", why, rule.Action, n)}
		}
	}
	return verdict{action: batchv1.PodFailurePolicyActionCount}
}

func exitCode(want *batchv1.PodFailurePolicyOnExitCodesRequirement, pod *corev1.Pod) string {
	for _, c := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		if c.State.Terminated == nil || c.State.Terminated.ExitCode == 0 ||
			want.ContainerName != nil && *want.ContainerName != c.Name {
			continue
		}
		code := c.State.Terminated.ExitCode
		in := want.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn
		if slices.Contains(want.Values, code) == in {
			return fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d", c.Name, pod.Namespace,
				pod.Name, code)
		}
	}
	return ""
}

func conditionOf(want []batchv1.PodFailurePolicyOnPodConditionsPattern, pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		for _, w := range want {
			if c.Type == w.Type && c.Status == w.Status {
				return fmt.Sprintf("Pod %s/%s has condition %v", pod.Namespace, pod.Name, c.Type)
			}
		}
	}
	return ""
}

// onlyFailed reports whether pods are replaced only once they have failed, and not as soon as they
// are deleted.
func onlyFailed(job *batchv1.Job) bool {
	if job.Spec.PodReplacementPolicy != nil {
		return *job.Spec.PodReplacementPolicy == batchv1.Failed
	}
	return job.Spec.PodFailurePolicy != nil
}

// failed reports whether a pod counts as failed. A deleted pod does, because it may never come to
// have the phase Failed.
func failed(job *batchv1.Job, pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodFailed {
		return true
	}
	return !onlyFailed(job) && pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded
}

// restartsExceeded reports whether containers that are restarted in place have failed too often.
func restartsExceeded(job *batchv1.Job, list []*corev1.Pod) bool {
	if job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	var restarts int64
	for _, pod := range list {
		if pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodPending {
			continue
		}
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			restarts += int64(c.RestartCount)
		}
	}
	limit := int64(*job.Spec.BackoffLimit)
	return limit == 0 && restarts > 0 || limit > 0 && restarts >= limit
}

// number returns the number in an annotation of a pod.
func number(pod *corev1.Pod, annotation string) int {
	n, err := strconv.Atoi(pod.Annotations[annotation])
	if err != nil {
		return 0
	}
	return n
}

// tries returns how often the index of a pod had failed before the pod.
func tries(pod *corev1.Pod) int {
	return number(pod, batchv1.JobIndexFailureCountAnnotation) + number(pod, ignoredAnnotation)
}

// indexFailures returns how many pods of the index of a failed pod have failed so far, with it, and
// how many failures the policy ignores.
func indexFailures(job *batchv1.Job, pod *corev1.Pod) (counted, ignored int) {
	counted = number(pod, batchv1.JobIndexFailureCountAnnotation)
	ignored = number(pod, ignoredAnnotation)
	if verdictOf(job, pod).action == batchv1.PodFailurePolicyActionIgnore {
		return counted, ignored + 1
	}
	return counted + 1, ignored
}

// ignoredAnnotation is the number of failures of a pod's index that the policy ignores. It counts
// for the backoff.
const ignoredAnnotation = "batch.kubernetes.io/job-index-ignored-failure-count"
