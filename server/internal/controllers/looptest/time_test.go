package looptest

import (
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// inBubble runs a test of what takes hours, with a control plane that has all loops and a node.
func inBubble(
	t *testing.T, test func(t *testing.T, c kubernetes.Interface, apply func(yaml string)),
) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Run(t, servertest.InBubble, servertest.Workloads)
		test(t, kubernetes.NewForConfigOrDie(s.RESTConfig()), func(yaml string) {
			servertest.Apply(t, s, "default", servertest.YAML(yaml))
		})
	})
}

// A node that is silent is unknown after its grace period of 50 s, and its pods have to go 300 s
// later.
func TestTimeOfSilentNode(t *testing.T) {
	inBubble(t, func(t *testing.T, c kubernetes.Interface, apply func(yaml string)) {
		ctx := t.Context()
		silent, err := c.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "silent"},
		}, metav1.CreateOptions{})
		workloadtest.OK(t, err)
		silent.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(),
		}}
		_, err = c.CoreV1().Nodes().UpdateStatus(ctx, silent, metav1.UpdateOptions{})
		workloadtest.OK(t, err)
		apply(`
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {nodeName: silent, containers: [{name: c, image: i}]}
`)
		ready := func() corev1.ConditionStatus {
			t.Helper()
			n, err := c.CoreV1().Nodes().Get(ctx, "silent", metav1.GetOptions{})
			workloadtest.OK(t, err)
			return nodeLifecycleCondition(n, corev1.NodeReady).Status
		}
		evicted := func() bool {
			t.Helper()
			p, err := c.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true
			}
			workloadtest.OK(t, err)
			return p.DeletionTimestamp != nil
		}
		time.Sleep(45 * time.Second)
		if r := ready(); r != corev1.ConditionTrue {
			t.Errorf("ready is %s before the grace period has ended", r)
		}
		time.Sleep(10 * time.Second)
		if r := ready(); r != corev1.ConditionUnknown {
			t.Errorf("ready is %s after the grace period", r)
		}
		time.Sleep(290 * time.Second)
		if evicted() {
			t.Error("the pod was evicted too early")
		}
		time.Sleep(30 * time.Second)
		if !evicted() {
			t.Error("the pod was not evicted")
		}
	})
}

// A rollout that does not get on has failed after the ten minutes of progressDeadlineSeconds.
func TestTimeOfFailedRollout(t *testing.T) {
	inBubble(t, func(t *testing.T, c kubernetes.Interface, apply func(yaml string)) {
		apply(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      nodeSelector: {nowhere: "true"}
      containers: [{name: c, image: i}]
`)
		reason := func() string {
			t.Helper()
			d, err := c.AppsV1().Deployments("default").Get(t.Context(), "d", metav1.GetOptions{})
			workloadtest.OK(t, err)
			for _, condition := range d.Status.Conditions {
				if condition.Type == "Progressing" {
					return condition.Reason
				}
			}
			return ""
		}
		time.Sleep(595 * time.Second)
		if r := reason(); r == "ProgressDeadlineExceeded" {
			t.Error("the rollout has failed too early")
		}
		time.Sleep(10 * time.Second)
		if r := reason(); r != "ProgressDeadlineExceeded" {
			t.Errorf("after ten minutes, the reason is %q", r)
		}
	})
}

// A Job that has run for longer than it may fails, and is deleted when its time to live is over.
func TestTimeOfJob(t *testing.T) {
	inBubble(t, func(t *testing.T, c kubernetes.Interface, apply func(yaml string)) {
		apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  activeDeadlineSeconds: 3600
  ttlSecondsAfterFinished: 1800
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, command: [sleep, infinity]}]
`)
		failed := func() string {
			t.Helper()
			j, err := c.BatchV1().Jobs("default").Get(t.Context(), "j", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return "it is deleted"
			}
			workloadtest.OK(t, err)
			return whyFailed(j)
		}
		for _, step := range []struct {
			after time.Duration
			want  string
		}{
			{59 * time.Minute, ""},
			{2 * time.Minute, "DeadlineExceeded"},
			{28 * time.Minute, "DeadlineExceeded"},
			{3 * time.Minute, "it is deleted"},
		} {
			time.Sleep(step.after)
			if got := failed(); got != step.want {
				t.Errorf("%s later: %q, want %q", step.after, got, step.want)
			}
		}
	})
}

// Events are gone after an hour and a little.
func TestTimeOfEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, c kubernetes.Interface, _ func(yaml string)) {
		events := c.CoreV1().Events("default")
		_, err := events.Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "e"},
			InvolvedObject: corev1.ObjectReference{Namespace: "default"},
		}, metav1.CreateOptions{})
		workloadtest.OK(t, err)
		time.Sleep(59 * time.Minute)
		_, err = events.Get(t.Context(), "e", metav1.GetOptions{})
		workloadtest.OK(t, err)
		time.Sleep(5 * time.Minute)
		if _, err := events.Get(t.Context(), "e", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("after an hour: %v, want not found", err)
		}
	})
}

// whyFailed returns the reason why a Job has failed, or nothing.
func whyFailed(j *batchv1.Job) string {
	for _, condition := range j.Status.Conditions {
		if condition.Type == batchv1.JobFailed && condition.Status == corev1.ConditionTrue {
			return condition.Reason
		}
	}
	return ""
}

// The pods of a Job that fails are replaced after 10 s, 20 s and so on, until its limit is reached.
func TestTimeOfFailingJob(t *testing.T) {
	inBubble(t, func(t *testing.T, c kubernetes.Interface, apply func(yaml string)) {
		apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  backoffLimit: 4
  template:
    metadata: {annotations: {kinproc.dev/exit-code: "1"}}
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i}]
`)
		for _, step := range []struct {
			after  time.Duration
			failed int32
			reason string
		}{
			{5 * time.Second, 1, ""},
			{10 * time.Second, 2, ""},
			{20 * time.Second, 3, ""},
			{40 * time.Second, 4, ""},
			{80 * time.Second, 5, "BackoffLimitExceeded"},
		} {
			time.Sleep(step.after)
			j, err := c.BatchV1().Jobs("default").Get(t.Context(), "j", metav1.GetOptions{})
			workloadtest.OK(t, err)
			reason := whyFailed(j)
			if j.Status.Failed != step.failed || reason != step.reason {
				t.Errorf("%s later: %d pods have failed, %q; want %d, %q", step.after, j.Status.Failed,
					reason, step.failed, step.reason)
			}
		}
	})
}

// A token is refused when it has expired, and a new one is accepted.
func TestTimeOfToken(t *testing.T) {
	inBubble(t, func(t *testing.T, c kubernetes.Interface, _ func(yaml string)) {
		request := &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))},
		}
		issue := func() string {
			t.Helper()
			made, err := c.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", request,
				metav1.CreateOptions{})
			workloadtest.OK(t, err)
			return made.Status.Token
		}
		valid := func(token string) bool {
			t.Helper()
			review, err := c.AuthenticationV1().TokenReviews().Create(t.Context(),
				&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
				metav1.CreateOptions{})
			workloadtest.OK(t, err)
			return review.Status.Authenticated
		}
		time.Sleep(time.Second) // for the service account
		first := issue()
		time.Sleep(50 * time.Minute)
		second := issue()
		if !valid(first) || !valid(second) {
			t.Error("a token is refused before its time")
		}
		time.Sleep(15 * time.Minute)
		if valid(first) {
			t.Error("the token is accepted after its time")
		}
		if !valid(second) {
			t.Error("the new token is refused")
		}
	})
}
