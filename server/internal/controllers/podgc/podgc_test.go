package podgc_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/podgc"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestPodsWithoutNodes has a pod whose node goes, one with a finalizer whose node goes, and one
// whose node comes only just in time. By the time the first two have been deleted, the third would
// have been, too.
func TestPodsWithoutNodes(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) { o.Controllers = []string{podgc.Name} })
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	nodes, pods := client.CoreV1().Nodes(), client.CoreV1().Pods("default")
	node := func(name string) {
		t.Helper()
		_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		workloadtest.OK(t, err)
	}
	node("goes")
	_, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	workloadtest.OK(t, err)
	for name, node := range map[string]string{"early": "late", "plain": "goes", "held": "goes"} {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			},
		}
		if name == "held" {
			p.Finalizers = []string{"example.com/hold"}
		}
		_, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
		workloadtest.OK(t, err)
	}
	workloadtest.OK(t, nodes.Delete(t.Context(), "goes", metav1.DeleteOptions{}))
	node("late")

	workloadtest.Until(t, func(ctx context.Context) string {
		if p, err := pods.Get(ctx, "plain", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("%v: %+v", err, p)
		}
		return ""
	})
	workloadtest.Until(t, func(ctx context.Context) string {
		p, err := pods.Get(ctx, "held", metav1.GetOptions{})
		if err == nil && p.DeletionTimestamp != nil && p.Status.Phase == corev1.PodFailed {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.DisruptionTarget && c.Reason == "DeletionByPodGC" {
					return ""
				}
			}
		}
		return fmt.Sprintf("%v: %+v", err, p)
	})
	if p, err := pods.Get(t.Context(), "early", metav1.GetOptions{}); err != nil ||
		p.DeletionTimestamp != nil {
		t.Errorf("the pod whose node came late: %v; %+v", err, p)
	}
}
