package looptest

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestCronJobsThatNeverCome has a schedule for a date that does not exist.
func TestCronJobsThatNeverCome(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	template := workloadtest.Template(nil)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	workloadtest.Must(client.BatchV1().CronJobs(namespace).Create(t.Context(), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "never"},
		Spec: batchv1.CronJobSpec{
			Schedule:    "0 0 31 2 *",
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}},
		},
	}, metav1.CreateOptions{}))(t)
	list := workloadtest.Await(t, "the warning", func(ctx context.Context) (*corev1.EventList, error) {
		return client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=never",
		})
	}, func(list *corev1.EventList) bool { return len(list.Items) > 0 })
	const want = "invalid schedule: 0 0 31 2 * : " +
		"time difference between two schedules is less than 1 second"
	if e := list.Items[0]; e.Type != corev1.EventTypeWarning || e.Reason != "InvalidSchedule" ||
		e.Message != want {
		t.Errorf("the event is %s %s: %s", e.Type, e.Reason, e.Message)
	}
}
