package looptest

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// horizontalPodAutoscalerOf creates an autoscaler.
func horizontalPodAutoscalerOf(
	t *testing.T, client kubernetes.Interface, namespace, name, apiVersion, kind, target string,
) {
	t.Helper()
	workloadtest.Must(client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Create(t.Context(),
		&autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				MaxReplicas: 8,
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
					APIVersion: apiVersion, Kind: kind, Name: target,
				},
				Metrics: []autoscalingv2.MetricSpec{{
					Type: autoscalingv2.ResourceMetricSourceType,
					Resource: &autoscalingv2.ResourceMetricSource{
						Name: corev1.ResourceCPU,
						Target: autoscalingv2.MetricTarget{
							Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50)),
						},
					},
				}},
			},
		}, metav1.CreateOptions{}))(t)
}

// horizontalPodAutoscalerAwait waits until a condition of an autoscaler has a reason.
func horizontalPodAutoscalerAwait(
	t *testing.T, client kubernetes.Interface, namespace, name, reason string,
) (*autoscalingv2.HorizontalPodAutoscalerStatus, string) {
	t.Helper()
	message := ""
	a := workloadtest.Await(t, name+" has "+reason,
		func(ctx context.Context) (*autoscalingv2.HorizontalPodAutoscaler, error) {
			return client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Get(ctx, name,
				metav1.GetOptions{})
		}, func(a *autoscalingv2.HorizontalPodAutoscaler) bool {
			for _, c := range a.Status.Conditions {
				if c.Reason == reason {
					message = c.Message
					return true
				}
			}
			return false
		})
	return &a.Status, message
}

func horizontalPodAutoscalerTarget(
	t *testing.T, client kubernetes.Interface, namespace string, replicas int32, paused bool,
) {
	t.Helper()
	labels := map[string]string{"a": "b"}
	workloadtest.Must(client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Paused: paused, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: workloadtest.Template(labels),
		},
	}, metav1.CreateOptions{}))(t)
}

// TestHorizontalPodAutoscalerCountsWhatIsWanted has a target without pods. An old version of the
// target's API is as good as the one that is served.
func TestHorizontalPodAutoscalerCountsWhatIsWanted(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	horizontalPodAutoscalerTarget(t, client, namespace, 5, true)
	horizontalPodAutoscalerOf(t, client, namespace, "h", "apps/v1beta2", "Deployment", "d")
	s, _ := horizontalPodAutoscalerAwait(t, client, namespace, "h", "FailedGetResourceMetric")
	if s.CurrentReplicas != 5 || s.DesiredReplicas != 0 {
		t.Errorf("current %d, desired %d; want 5 and 0", s.CurrentReplicas, s.DesiredReplicas)
	}
}

func TestHorizontalPodAutoscalerNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	for name, target := range map[string]struct{ apiVersion, kind, why string }{
		"object":  {"apps/v1", "Deployment", `deployments.apps "none" not found`},
		"kind":    {"apps/v1", "Nothing", `no matches for kind "Nothing" in group "apps"`},
		"version": {"none.example.com/v1", "X", `no matches for kind "X" in group "none.example.com"`},
	} {
		horizontalPodAutoscalerOf(t, client, namespace, name, target.apiVersion, target.kind, "none")
		_, message := horizontalPodAutoscalerAwait(t, client, namespace, name, "FailedGetScale")
		want := "the HPA controller was unable to get the target's current scale: " + target.why
		if message != want {
			t.Errorf("%s: %q, want %q", name, message, want)
		}
		workloadtest.Until(t, func(ctx context.Context) string {
			list, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
				FieldSelector: "reason=FailedGetScale,involvedObject.name=" + name,
			})
			if err != nil {
				return err.Error()
			}
			for _, e := range list.Items {
				if e.Message == target.why {
					return ""
				}
			}
			return "no event says " + target.why
		})
	}
}

// TestHorizontalPodAutoscalerWithRivals has two autoscalers for the same pods. Neither knows any
// metrics then.
func TestHorizontalPodAutoscalerWithRivals(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	horizontalPodAutoscalerTarget(t, client, namespace, 1, false)
	horizontalPodAutoscalerOf(t, client, namespace, "first", "apps/v1", "Deployment", "d")
	s, _ := horizontalPodAutoscalerAwait(t, client, namespace, "first", "FailedGetResourceMetric")
	if len(s.CurrentMetrics) != 1 {
		t.Errorf("alone, it has the metrics %v", s.CurrentMetrics)
	}
	workloadtest.Await(t, "the pod", func(ctx context.Context) (*corev1.PodList, error) {
		return client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	}, func(list *corev1.PodList) bool { return len(list.Items) == 1 })
	horizontalPodAutoscalerOf(t, client, namespace, "second", "apps/v1", "Deployment", "d")
	horizontalPodAutoscalerAwait(t, client, namespace, "second", "AmbiguousSelector")
	workloadtest.Must(client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Patch(t.Context(),
		"first", types.MergePatchType, []byte(`{"spec":{"maxReplicas":9}}`), metav1.PatchOptions{}))(t)
	s, _ = horizontalPodAutoscalerAwait(t, client, namespace, "first", "AmbiguousSelector")
	if s.CurrentMetrics != nil || s.CurrentReplicas != 1 {
		t.Errorf("with a rival, it has %d replicas and the metrics %v", s.CurrentReplicas,
			s.CurrentMetrics)
	}
}
