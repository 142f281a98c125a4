package ttlafterfinished_test

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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/ttlafterfinished"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// cluster is a control plane in which nothing runs Jobs but the test.
type cluster struct {
	*testing.T
	*server.Server
	client kubernetes.Interface
}

func start(t *testing.T, controllers ...string) cluster {
	t.Helper()
	s := servertest.Run(t, func(o *server.Options) {
		o.Controllers = append([]string{"garbage-collector-controller"}, controllers...)
	})
	return cluster{t, s, workloadtest.Client(t, s)}
}

// run runs a controller with a client until stop is called or the test ends.
func (c cluster) run(client kubernetes.Interface) (stop func()) {
	c.Helper()
	factory := informers.NewSharedInformerFactory(client, 0)
	return workloadtest.Start(c.T, factory,
		ttlafterfinished.New(client, factory.Batch().V1().Jobs()))
}

// create creates a Job. Its time to live may be nil. Finished is when it finished, or nil if it has
// not; it may be zero.
func (c cluster) create(
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
	ended := ago(time.Minute)
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

func ago(d time.Duration) *metav1.Time { return new(metav1.NewTime(time.Now().Add(-d))) }

func (c cluster) remove(ctx context.Context, name string) error {
	return c.client.BatchV1().Jobs("default").Delete(ctx, name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
}

func (c cluster) patch(ctx context.Context, name, patch string) error {
	_, err := c.client.BatchV1().Jobs("default").Patch(ctx, name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	return err
}

// gone waits until Jobs do not exist any more.
func (c cluster) gone(names ...string) {
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
func (c cluster) kept(names ...string) {
	c.Helper()
	for _, name := range names {
		job := workloadtest.Must(c.client.BatchV1().Jobs("default").Get(c.Context(), name,
			metav1.GetOptions{}))(c.T)
		if job.DeletionTimestamp != nil {
			c.Errorf("%s is being deleted: %+v", name, job)
		}
	}
}

func TestTTL(t *testing.T) {
	t.Parallel()
	c := start(t, ttlafterfinished.Name)
	for _, job := range []struct {
		name     string
		ttl      *int32
		finished *metav1.Time
	}{
		{"running", new(int32(0)), nil},
		{"kept", nil, ago(time.Minute)},
		{"young", new(int32(3600)), ago(time.Minute)},
		{"unknown", new(int32(0)), &metav1.Time{}}, // nobody knows when it finished
		{"soon", new(int32(61)), ago(time.Minute)},
		{"old", new(int32(30)), ago(time.Minute)},
	} {
		workloadtest.OK(t, c.create(t.Context(), job.name, job.ttl, job.finished))
	}
	c.gone("old", "soon")
	c.kept("running", "kept", "young", "unknown")
}

// TestRaces changes a Job when the controller is about to delete it.
func TestRaces(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(context.Context, cluster) error{
		"recreated": func(ctx context.Context, c cluster) error {
			return errors.Join(c.remove(ctx, "j"), c.create(ctx, "j", new(int32(0)), nil))
		},
		"extended": func(ctx context.Context, c cluster) error {
			return c.patch(ctx, "j", `{"spec":{"ttlSecondsAfterFinished":3600}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			workloadtest.OK(t, c.create(t.Context(), "j", new(int32(1)), ago(time.Minute)))
			client, done := workloadtest.Meanwhile(t, c.Server, "DELETE", "/jobs/j",
				func(ctx context.Context) error { return change(ctx, c) })
			c.run(client)
			<-done
			// The controller goes on.
			workloadtest.OK(t, c.create(t.Context(), "last", new(int32(1)), ago(time.Minute)))
			c.gone("last")
			c.kept("j")
		})
	}
	// What somebody else has changed does not keep the Job.
	t.Run("labelled", func(t *testing.T) {
		t.Parallel()
		c := start(t)
		workloadtest.OK(t, c.create(t.Context(), "j", new(int32(1)), ago(time.Minute)))
		client, _ := workloadtest.Meanwhile(t, c.Server, "DELETE", "/jobs/j",
			func(ctx context.Context) error {
				return c.patch(ctx, "j", `{"metadata":{"labels":{"changed":"meanwhile"}}}`)
			})
		c.run(client)
		c.gone("j")
	})
}

// TestRestart changes Jobs while no controller runs.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := start(t)
	for _, name := range []string{"recreated", "extended", "unlimited", "shortened", "passed"} {
		workloadtest.OK(t, c.create(t.Context(), name, new(int32(120)), ago(time.Minute)))
	}
	workloadtest.OK(t, c.patch(t.Context(), "shortened",
		`{"spec":{"ttlSecondsAfterFinished":3600}}`))
	stop := c.run(c.client)
	workloadtest.OK(t, c.create(t.Context(), "first", new(int32(0)), ago(time.Minute)))
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
	workloadtest.OK(t, c.create(t.Context(), "last", new(int32(61)), ago(time.Minute)))
	c.gone("last")
	c.kept("recreated", "extended", "unlimited")
}
