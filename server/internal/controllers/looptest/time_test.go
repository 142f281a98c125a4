package looptest

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// inBubble runs a test of what takes hours, with a control plane that has all loops and a node.
func inBubble(
	t *testing.T, test func(t *testing.T, c kubernetes.Interface, apply func(yaml string)),
) {
	t.Helper()
	inBubbleFrom(t, time.Time{}, test)
}

// inBubbleFrom is inBubble with a control plane that starts at a time. A bubble begins on January
// 1, 2000.
func inBubbleFrom(
	t *testing.T, start time.Time,
	test func(t *testing.T, c kubernetes.Interface, apply func(yaml string)),
) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(start))
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
		_, err := c.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "silent"},
		}, metav1.CreateOptions{})
		workloadtest.OK(t, err)
		// The loop of nodes writes to it, too, so an update may conflict.
		_, err = c.CoreV1().Nodes().Patch(ctx, "silent", types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"status":{"conditions":[
				{"type":"Ready","status":"True","lastHeartbeatTime":"%s"}]}}`,
				time.Now().UTC().Format(time.RFC3339)), metav1.PatchOptions{}, "status")
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

// In the night to March 26, 2000, clocks in Berlin went from two to three: there was no half past
// two, and half past three was at half past one UTC.
func TestTimeOfSummer(t *testing.T) {
	midnight := time.Date(2000, time.March, 26, 0, 0, 0, 0, time.UTC)
	inBubbleFrom(t, midnight, func(t *testing.T, c kubernetes.Interface, apply func(yaml string)) {
		for name, when := range map[string]string{
			"two-in-berlin":   "schedule: 30 2 * * *\n  timeZone: Europe/Berlin",
			"three-in-berlin": "schedule: 30 3 * * *\n  timeZone: Europe/Berlin",
			"two":             "schedule: 30 2 * * *\n  timeZone: Etc/UTC",
		} {
			apply(fmt.Sprintf(scheduled, name, when))
		}
		time.Sleep(2 * time.Hour)
		if got := jobsByCronJob(t, c); !maps.Equal(got, map[string]int{"three-in-berlin": 1}) {
			t.Errorf("at two o'clock UTC: %v Jobs", got)
		}
		time.Sleep(time.Hour)
		want := map[string]int{"three-in-berlin": 1, "two": 1}
		if got := jobsByCronJob(t, c); !maps.Equal(got, want) {
			t.Errorf("at three o'clock UTC: %v Jobs, want %v", got, want)
		}
	})
}

// A CronJob that is resumed makes up for the last run that it missed, unless the deadline of that
// run is over.
func TestTimeOfMissedSchedule(t *testing.T) {
	inBubble(t, func(t *testing.T, c kubernetes.Interface, apply func(yaml string)) {
		time.Sleep(30 * time.Minute)
		hourly := "schedule: '0 * * * *'\n  suspend: true"
		apply(fmt.Sprintf(scheduled, "late", hourly))
		apply(fmt.Sprintf(scheduled, "strict", hourly+"\n  startingDeadlineSeconds: 600"))
		time.Sleep(3 * time.Hour)
		if got := jobsByCronJob(t, c); len(got) != 0 {
			t.Errorf("suspended CronJobs have Jobs: %v", got)
		}
		for _, name := range []string{"late", "strict"} {
			_, err := c.BatchV1().CronJobs("default").Patch(t.Context(), name, types.MergePatchType,
				[]byte(`{"spec": {"suspend": false}}`), metav1.PatchOptions{})
			workloadtest.OK(t, err)
		}
		time.Sleep(time.Minute)
		if got := jobsByCronJob(t, c); got["late"] != 1 || got["strict"] != 0 {
			t.Errorf("a minute after they were resumed, the CronJobs have %v Jobs", got)
		}
		time.Sleep(30 * time.Minute)
		if got := jobsByCronJob(t, c); got["late"] != 2 || got["strict"] != 1 {
			t.Errorf("after the next hour, the CronJobs have %v Jobs", got)
		}
	})
}

const scheduled = `
apiVersion: batch/v1
kind: CronJob
metadata: {name: %s}
spec:
  %s
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: c, image: i}]
`

// jobsByCronJob counts the Jobs of each CronJob.
func jobsByCronJob(t *testing.T, c kubernetes.Interface) map[string]int {
	t.Helper()
	jobs, err := c.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
	workloadtest.OK(t, err)
	counts := map[string]int{}
	for _, j := range jobs.Items {
		counts[metav1.GetControllerOf(&j).Name]++
	}
	return counts
}

// Another candidate leads when the lease of a leader that died has run out.
func TestTimeOfLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, c kubernetes.Interface, _ func(yaml string)) {
		var candidates sync.WaitGroup
		defer candidates.Wait()
		var leader atomic.Value
		leader.Store("")
		stand := func(name string) (die func()) {
			ctx, cancel := context.WithCancel(t.Context())
			candidates.Go(func() {
				leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
					Lock: &resourcelock.LeaseLock{
						LeaseMeta:  metav1.ObjectMeta{Namespace: "default", Name: "leader"},
						Client:     c.CoordinationV1(),
						LockConfig: resourcelock.ResourceLockConfig{Identity: name},
					},
					LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second,
					RetryPeriod: 2 * time.Second,
					Callbacks: leaderelection.LeaderCallbacks{
						OnStartedLeading: func(context.Context) { leader.Store(name) },
						OnStoppedLeading: func() {},
					},
				})
			})
			return cancel
		}
		die := stand("first")
		time.Sleep(time.Minute)
		defer stand("second")()
		time.Sleep(time.Hour)
		if l := leader.Load(); l != "first" {
			t.Errorf("%q leads while the first candidate renews its lease", l)
		}
		die()
		time.Sleep(10 * time.Second)
		if l := leader.Load(); l != "first" {
			t.Errorf("%q leads before the lease has run out", l)
		}
		time.Sleep(15 * time.Second)
		if l := leader.Load(); l != "second" {
			t.Errorf("%q leads after the lease has run out", l)
		}
	})
}

// A watch ends when its time is over. An informer takes up another one, misses nothing, and repeats
// what it knows with each resync.
func TestTimeOfInformer(t *testing.T) {
	inBubble(t, func(t *testing.T, c kubernetes.Interface, apply func(yaml string)) {
		begun := time.Now() // the server may begin to count before Watch returns
		w, err := c.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{
			TimeoutSeconds: new(int64(300)),
		})
		workloadtest.OK(t, err)
		ended := make(chan time.Time, 1)
		go func() {
			for range w.ResultChan() {
			}
			ended <- time.Now()
		}()

		factory := informers.NewSharedInformerFactoryWithOptions(c, 2*time.Hour,
			informers.WithNamespace("default"))
		defer factory.Shutdown()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var resyncs atomic.Int32
		configMaps := factory.Core().V1().ConfigMaps()
		_, err = configMaps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(old, obj any) {
				if old == obj && obj.(*corev1.ConfigMap).Name == "a" {
					resyncs.Add(1)
				}
			},
		})
		workloadtest.OK(t, err)
		apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}")
		factory.StartWithContext(ctx)
		factory.WaitForCacheSyncWithContext(ctx)

		if lasted := (<-ended).Sub(begun); lasted.Truncate(time.Second) != 300*time.Second {
			t.Errorf("the watch lasted %s", lasted)
		}
		time.Sleep(100 * time.Minute) // the informer's watches last for five to ten minutes
		apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}")
		time.Sleep(time.Second)
		_, err = configMaps.Lister().ConfigMaps("default").Get("b")
		workloadtest.OK(t, err)
		if n := resyncs.Load(); n != 0 {
			t.Errorf("%d resyncs before their time", n)
		}
		time.Sleep(30 * time.Minute)
		if n := resyncs.Load(); n != 1 {
			t.Errorf("%d resyncs in two hours", n)
		}
	})
}

// A request for a certificate that was denied is deleted after an hour.
func TestTimeOfCertificateRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, c kubernetes.Interface, _ func(yaml string)) {
		requests := certificateRequestsOf(t, c)
		requests.decide(requests.ask("denied", certificatesv1.KubeAPIServerClientSignerName,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}}, nil,
			certificatesv1.UsageClientAuth), certificatesv1.CertificateDenied)
		time.Sleep(59 * time.Minute)
		workloadtest.Must(requests.Get(t.Context(), "denied", metav1.GetOptions{}))(t)
		time.Sleep(time.Hour + time.Minute) // the loop looks at the requests now and then
		if _, err := requests.Get(t.Context(), "denied", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("after two hours: %v, want not found", err)
		}
	})
}

// A watch from a list's revision ends when its time is over, and can be taken up again where its
// last bookmark was, although etcd has forgotten the list's revision by then.
func TestTimeOfWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, c kubernetes.Interface, _ func(yaml string)) {
		maps := c.CoreV1().ConfigMaps("default")
		list := workloadtest.Must(maps.List(t.Context(), metav1.ListOptions{}))(t)
		options := metav1.ListOptions{
			ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true,
			TimeoutSeconds: new(int64(1800)),
		}
		begin := time.Now()
		w := workloadtest.Must(maps.Watch(t.Context(), options))(t)
		for e := range w.ResultChan() {
			options.ResourceVersion = workloadtest.Must(meta.Accessor(e.Object))(t).GetResourceVersion()
		}
		if took := time.Since(begin).Round(time.Second); took != 30*time.Minute {
			t.Errorf("the watch ended after %s", took)
		}
		workloadtest.Must(maps.Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{}))(t)
		w = workloadtest.Must(maps.Watch(t.Context(), options))(t)
		defer w.Stop()
		if e := <-w.ResultChan(); e.Type != watch.Added {
			t.Errorf("the next watch begins with %s: %v", e.Type, apierrors.FromObject(e.Object))
		}
	})
}

// An autoscaler adds replicas at once, and removes them when five minutes have passed in which
// fewer were enough.
func TestTimeOfAutoscaler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := startHorizontalPodAutoscaler(t, servertest.InBubble)
		metrics := &horizontalPodAutoscalerMetrics{pods: []string{"a", "b"}}
		metrics.milliCPU.Store(200)
		c.target(metrics.pods...)
		c.serve(metrics)
		c.create("d", autoscalingv2.HorizontalPodAutoscalerBehavior{})
		replicas := func() int32 {
			t.Helper()
			d := workloadtest.Must(c.client.AppsV1().Deployments("default").Get(t.Context(), "d",
				metav1.GetOptions{}))(t)
			return *d.Spec.Replicas
		}
		time.Sleep(time.Minute)
		if n := replicas(); n != 5 {
			t.Errorf("a minute later there are %d replicas, want 5", n)
		}
		metrics.milliCPU.Store(10)
		time.Sleep(280 * time.Second)
		if n := replicas(); n != 5 {
			t.Errorf("before the window has ended there are %d replicas, want 5", n)
		}
		time.Sleep(40 * time.Second) // the loop looks every 15 s
		if n := replicas(); n != 2 {
			t.Errorf("after the window has ended there are %d replicas, want 2", n)
		}
	})
}

// A flow schema that somebody deletes or changes is there again, as it was, after a minute.
func TestTimeOfFlowSchemas(t *testing.T) {
	inBubble(t, func(t *testing.T, c kubernetes.Interface, _ func(yaml string)) {
		schemas := c.FlowcontrolV1().FlowSchemas()
		time.Sleep(10 * time.Minute)
		was := workloadtest.Must(schemas.Get(t.Context(), "probes", metav1.GetOptions{}))(t)
		_, err := schemas.Patch(t.Context(), "probes", types.MergePatchType,
			[]byte(`{"spec": {"matchingPrecedence": 9}}`), metav1.PatchOptions{})
		workloadtest.OK(t, err)
		time.Sleep(time.Minute + time.Second)
		is := workloadtest.Must(schemas.Get(t.Context(), "probes", metav1.GetOptions{}))(t)
		if was.Spec.MatchingPrecedence == 9 ||
			is.Spec.MatchingPrecedence != was.Spec.MatchingPrecedence {
			t.Errorf("the precedence was %d and is %d", was.Spec.MatchingPrecedence,
				is.Spec.MatchingPrecedence)
		}
		workloadtest.OK(t, schemas.Delete(t.Context(), "probes", metav1.DeleteOptions{}))
		time.Sleep(time.Minute + time.Second)
		workloadtest.Must(schemas.Get(t.Context(), "probes", metav1.GetOptions{}))(t)
	})
}
