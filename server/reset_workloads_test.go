package server_test

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/servertest"
)

// TestResetWithWorkloads resets a control plane while its control loops roll out Deployments. What
// they remember of pods that never existed must not hold them up afterwards.
func TestResetWithWorkloads(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.Workloads)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	awaitReplicas(t, client, deploy(t, client, "kept", 3), 3)
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		deploy(t, client, "lost", 3) // is still being rolled out
		if err := s.Reset(t.Context(), snapshot); err != nil {
			t.Fatal(err)
		}
	}
	awaitReplicas(t, client, deploy(t, client, "lost", 3), 3)
	if err := client.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(t.Context(),
		metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=kept"}); err != nil {
		t.Fatal(err)
	}
	awaitReplicas(t, client, "kept", 3)
	pods, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(),
		metav1.ListOptions{LabelSelector: "app=lost"})
	if err != nil || len(pods.Items) != 3 {
		t.Errorf("%d pods, %v", len(pods.Items), err)
	}
}

// deploy creates a Deployment, and returns its name.
func deploy(t testing.TB, client kubernetes.Interface, name string, replicas int32) string {
	t.Helper()
	labels := map[string]string{"app": name}
	_, err := client.AppsV1().Deployments(metav1.NamespaceDefault).Create(t.Context(),
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas,
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
				},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// awaitReplicas waits until a Deployment has as many available pods, and the status says so.
func awaitReplicas(t *testing.T, client kubernetes.Interface, name string, n int) {
	t.Helper()
	var last *appsv1.Deployment
	if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (done bool, err error) {
			last, err = client.AppsV1().Deployments(metav1.NamespaceDefault).Get(ctx, name,
				metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			pods, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx,
				metav1.ListOptions{LabelSelector: "app=" + name})
			if err != nil {
				return false, err
			}
			running := 0
			for _, p := range pods.Items {
				if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
					running++
				}
			}
			return running == n && last.Status.AvailableReplicas == int32(n), nil
		}); err != nil {
		t.Fatalf("%s: %v: %+v", name, err, last.Status)
	}
}
