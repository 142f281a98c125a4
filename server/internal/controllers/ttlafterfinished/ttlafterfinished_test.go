package ttlafterfinished_test

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/ttlafterfinished"
	"github.com/kinproc/kinproc/server/servertest"
)

func TestTTL(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.Controllers = []string{ttlafterfinished.Name, "garbage-collector-controller"}
	})
	client, ctx := kubernetes.NewForConfigOrDie(s.RESTConfig()), t.Context()
	jobs := client.BatchV1().Jobs("default")
	ended := metav1.NewTime(time.Now().Add(-time.Minute))
	create := func(name string, ttl *int32, finished bool) {
		t.Helper()
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
		if err != nil {
			t.Fatal(err)
		}
		if !finished {
			return
		}
		job.Status.StartTime, job.Status.CompletionTime = &ended, &ended
		for _, which := range []batchv1.JobConditionType{
			batchv1.JobSuccessCriteriaMet, batchv1.JobComplete,
		} {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
				Type: which, Status: corev1.ConditionTrue, LastTransitionTime: ended,
			})
		}
		if _, err := jobs.UpdateStatus(ctx, job, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("running", new(int32(0)), false)
	create("kept", nil, true)
	create("young", new(int32(3600)), true)
	create("soon", new(int32(61)), true)
	create("old", new(int32(30)), true)
	for _, name := range []string{"old", "soon"} {
		err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, 30*time.Second, true,
			func(ctx context.Context) (bool, error) {
				_, err := jobs.Get(ctx, name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return true, nil
				}
				return false, err
			})
		if err != nil {
			t.Errorf("%s still exists: %v", name, err)
		}
	}
	for _, name := range []string{"running", "kept", "young"} {
		job, err := jobs.Get(ctx, name, metav1.GetOptions{})
		if err != nil || job.DeletionTimestamp != nil {
			t.Errorf("%s: %v: %+v", name, err, job)
		}
	}
}
