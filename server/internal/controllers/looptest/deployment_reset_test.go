package looptest

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestResetWithWorkloads resets a control plane while its control loops roll out Deployments. What
// they remember of pods that never existed must not hold them up afterwards.
func TestResetWithWorkloads(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.Workloads)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	deploymentAwaitReplicas(t, client, deploymentCreate(t, client, "kept"), 3)
	snapshot, err := s.Snapshot(t.Context())
	workloadtest.OK(t, err)
	for range 3 {
		deploymentCreate(t, client, "lost") // is still being rolled out
		workloadtest.OK(t, s.Reset(t.Context(), snapshot))
	}
	deploymentAwaitReplicas(t, client, deploymentCreate(t, client, "lost"), 3)
	workloadtest.OK(t, client.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(t.Context(),
		metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=kept"}))
	deploymentAwaitReplicas(t, client, "kept", 3)
	pods, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(),
		metav1.ListOptions{LabelSelector: "app=lost"})
	if err != nil || len(pods.Items) != 3 {
		t.Errorf("%d pods, %v", len(pods.Items), err)
	}
}

// deploymentCreate creates a Deployment of three replicas, and returns its name.
func deploymentCreate(t *testing.T, client kubernetes.Interface, name string) string {
	t.Helper()
	labels := map[string]string{"app": name}
	d := deploymentOf(3)
	d.Name, d.Spec.Selector.MatchLabels = name, labels
	d.Spec.Template = workloadtest.Template(labels)
	_, err := client.AppsV1().Deployments(metav1.NamespaceDefault).Create(t.Context(), d,
		metav1.CreateOptions{})
	workloadtest.OK(t, err)
	return name
}

// deploymentAwaitReplicas waits until a Deployment has as many available pods, and the status says
// so.
func deploymentAwaitReplicas(t *testing.T, client kubernetes.Interface, name string, n int) {
	t.Helper()
	workloadtest.Until(t, func(ctx context.Context) (complaint string) {
		d, err := client.AppsV1().Deployments(metav1.NamespaceDefault).Get(ctx, name,
			metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		pods, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx,
			metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err.Error()
		}
		running := 0
		for _, p := range pods.Items {
			if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running == n && d.Status.AvailableReplicas == int32(n) {
			return ""
		}
		return fmt.Sprintf("%s has %d running pods, want %d: %+v", name, running, n, d.Status)
	})
}
