package cli_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// TestWorkloadsGoOnAfterKill kills the program while it rolls out a Deployment and runs a Job, and
// checks that both complete when the program runs again.
func TestWorkloadsGoOnAfterKill(t *testing.T) {
	t.Parallel()
	const count = 40
	dir := filepath.Join(t.TempDir(), "data")
	p := startProgram(t, dir)
	client := p.client()
	labels := map[string]string{"app": "web"}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(count)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec,
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	spec.RestartPolicy = corev1.RestartPolicyNever
	if _, err := client.BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "once"},
		Spec: batchv1.JobSpec{
			Completions: new(int32(count)), Parallelism: new(int32(10)),
			Template: corev1.PodTemplateSpec{Spec: spec},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	phases := func(pods []corev1.Pod) map[corev1.PodPhase]int {
		n := map[corev1.PodPhase]int{}
		for _, p := range pods {
			n[p.Status.Phase]++
		}
		return n
	}
	until := func(client kubernetes.Interface, done func(pods []corev1.Pod) bool) {
		t.Helper()
		var last []corev1.Pod
		if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				list, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
				if err != nil {
					return false, err
				}
				last = list.Items
				return done(last), nil
			}); err != nil {
			t.Fatalf("%v: %v", err, phases(last))
		}
	}
	until(client, func(pods []corev1.Pod) bool { return len(pods) >= count/4 })
	p.kill()

	p = startProgram(t, dir)
	client = p.client()
	var last any
	if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			web, err := client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			once, err := client.BatchV1().Jobs("default").Get(ctx, "once", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			last = []any{web.Status, once.Status}
			return web.Status.AvailableReplicas == count && once.Status.Succeeded == count &&
				once.Status.CompletionTime != nil, nil
		}); err != nil {
		t.Fatalf("%v: %+v", err, last)
	}
	// Nothing was made twice.
	until(client, func(pods []corev1.Pod) bool {
		n := phases(pods)
		return len(pods) == 2*count && n[corev1.PodRunning] == count && n[corev1.PodSucceeded] == count
	})
}
