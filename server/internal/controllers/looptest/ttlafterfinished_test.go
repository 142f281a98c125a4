package looptest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/batch/ttlafterfinished"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// ttlAfterFinishedCluster is a control plane in which nothing runs Jobs but the test.
type ttlAfterFinishedCluster struct {
	*testing.T
	*server.Server
	client kubernetes.Interface
}

func ttlAfterFinishedStart(t *testing.T, controllers ...string) ttlAfterFinishedCluster {
	t.Helper()
	s := servertest.Run(t, func(o *server.Options) {
		o.Controllers = append([]string{"garbage-collector-controller"}, controllers...)
	})
	return ttlAfterFinishedCluster{t, s, workloadtest.Client(t, s)}
}

// run runs a controller with a client until stop is called or the test ends.
func (c ttlAfterFinishedCluster) run(client kubernetes.Interface) (stop func()) {
	c.Helper()
	d, _ := workloadtest.Dependencies(client)
	return workloadtest.Start(c.T, d, ttlafterfinished.Loop())
}

// create creates a Job. Its time to live may be nil. Finished is when it finished, or nil if it has
// not; it may be zero.
func (c ttlAfterFinishedCluster) create(
	ctx context.Context, name string, ttl *int32, finished *metav1.Time,
) error {
	jobs := c.client.BatchV1().Jobs("default")
	job, err := jobs.Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			TTLSecondsAfterFinished: ttl,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "c", Image: "i"}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil || finished == nil {
		return err
	}
	ended := ttlAfterFinishedAgo(time.Minute)
	job.Status.StartTime, job.Status.CompletionTime = ended, ended
	for _, which := range []batchv1.JobConditionType{
		batchv1.JobSuccessCriteriaMet, batchv1.JobComplete,
	} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: which, Status: corev1.ConditionTrue, LastTransitionTime: *finished,
		})
	}
	_, err = jobs.UpdateStatus(ctx, job, metav1.UpdateOptions{})
	return err
}

func ttlAfterFinishedAgo(d time.Duration) *metav1.Time {
	return new(metav1.NewTime(time.Now().Add(-d)))
}

func (c ttlAfterFinishedCluster) remove(ctx context.Context, name string) error {
	return c.client.BatchV1().Jobs("default").Delete(ctx, name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
}

func (c ttlAfterFinishedCluster) patch(ctx context.Context, name, patch string) error {
	_, err := c.client.BatchV1().Jobs("default").Patch(ctx, name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	return err
}

// gone waits until Jobs do not exist any more.
func (c ttlAfterFinishedCluster) gone(names ...string) {
	c.Helper()
	for _, name := range names {
		workloadtest.Until(c.T, func(ctx context.Context) string {
			job, err := c.client.BatchV1().Jobs("default").Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return ""
			}
			return fmt.Sprintf("%v: %+v", err, job)
		})
	}
}

// kept checks that Jobs are not being deleted.
func (c ttlAfterFinishedCluster) kept(names ...string) {
	c.Helper()
	for _, name := range names {
		job := workloadtest.Must(c.client.BatchV1().Jobs("default").Get(c.Context(), name,
			metav1.GetOptions{}))(c.T)
		if job.DeletionTimestamp != nil {
			c.Errorf("%s is being deleted: %+v", name, job)
		}
	}
}

func TestTTLAfterFinished(t *testing.T) {
	t.Parallel()
	c := ttlAfterFinishedStart(t, ttlafterfinished.Name)
	for _, job := range []struct {
		name     string
		ttl      *int32
		finished *metav1.Time
	}{
		{"running", new(int32(0)), nil},
		{"kept", nil, ttlAfterFinishedAgo(time.Minute)},
		{"young", new(int32(3600)), ttlAfterFinishedAgo(time.Minute)},
		{"unknown", new(int32(0)), &metav1.Time{}}, // nobody knows when it finished
		{"soon", new(int32(61)), ttlAfterFinishedAgo(time.Minute)},
		{"old", new(int32(30)), ttlAfterFinishedAgo(time.Minute)},
	} {
		workloadtest.OK(t, c.create(t.Context(), job.name, job.ttl, job.finished))
	}
	c.gone("old", "soon")
	c.kept("running", "kept", "young", "unknown")
}

// TestTTLAfterFinishedRaces changes a Job when the controller is about to delete it.
func TestTTLAfterFinishedRaces(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(context.Context, ttlAfterFinishedCluster) error{
		"recreated": func(ctx context.Context, c ttlAfterFinishedCluster) error {
			return errors.Join(c.remove(ctx, "j"), c.create(ctx, "j", new(int32(0)), nil))
		},
		"extended": func(ctx context.Context, c ttlAfterFinishedCluster) error {
			return c.patch(ctx, "j", `{"spec":{"ttlSecondsAfterFinished":3600}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ttlAfterFinishedStart(t)
			workloadtest.OK(t, c.create(t.Context(), "j", new(int32(1)), ttlAfterFinishedAgo(time.Minute)))
			client, done := workloadtest.Meanwhile(t, c.Server, "DELETE", "/jobs/j",
				func(ctx context.Context) error { return change(ctx, c) })
			c.run(client)
			<-done
			// The controller goes on.
			workloadtest.OK(t, c.create(t.Context(), "last", new(int32(1)),
				ttlAfterFinishedAgo(time.Minute)))
			c.gone("last")
			c.kept("j")
		})
	}
	// A change by somebody else does not keep the Job.
	t.Run("labelled", func(t *testing.T) {
		t.Parallel()
		c := ttlAfterFinishedStart(t)
		workloadtest.OK(t, c.create(t.Context(), "j", new(int32(1)), ttlAfterFinishedAgo(time.Minute)))
		client, _ := workloadtest.Meanwhile(t, c.Server, "DELETE", "/jobs/j",
			func(ctx context.Context) error {
				return c.patch(ctx, "j", `{"metadata":{"labels":{"changed":"meanwhile"}}}`)
			})
		c.run(client)
		c.gone("j")
	})
}

// TestTTLAfterFinishedRestart changes Jobs while no controller runs.
func TestTTLAfterFinishedRestart(t *testing.T) {
	t.Parallel()
	c := ttlAfterFinishedStart(t)
	for _, name := range []string{"recreated", "extended", "unlimited", "shortened", "passed"} {
		workloadtest.OK(t, c.create(t.Context(), name, new(int32(120)), ttlAfterFinishedAgo(time.Minute)))
	}
	workloadtest.OK(t, c.patch(t.Context(), "shortened",
		`{"spec":{"ttlSecondsAfterFinished":3600}}`))
	stop := c.run(c.client)
	workloadtest.OK(t, c.create(t.Context(), "first", new(int32(0)), ttlAfterFinishedAgo(time.Minute)))
	c.gone("first")
	stop()
	workloadtest.OK(t, c.remove(t.Context(), "recreated"))
	workloadtest.OK(t, c.create(t.Context(), "recreated", new(int32(0)), nil))
	for name, ttl := range map[string]string{
		"extended": "3600", "unlimited": "null", "shortened": "0", "passed": "61",
	} {
		workloadtest.OK(t, c.patch(t.Context(), name,
			`{"spec":{"ttlSecondsAfterFinished":`+ttl+`}}`))
	}
	c.run(c.client)
	c.gone("shortened", "passed")
	workloadtest.OK(t, c.create(t.Context(), "last", new(int32(61)), ttlAfterFinishedAgo(time.Minute)))
	c.gone("last")
	c.kept("recreated", "extended", "unlimited")
}
