package looptest

import (
	"context"
	"fmt"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/autoscaling/horizontalpodautoscalers"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestHorizontalPodAutoscalerZero scales to zero and back by the length of a queue, which is an
// annotation of the namespace.
func TestHorizontalPodAutoscalerZero(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.SimulatedNodes, o.SimulatedMetrics = 1, true
		o.Controllers = []string{horizontalpodautoscalers.Name}
	})
	c := horizontalPodAutoscaler{t, s, workloadtest.Client(t, s)}
	c.target()
	queue := func(length int) {
		t.Helper()
		workloadtest.Must(c.client.CoreV1().Namespaces().Patch(t.Context(), workloadtest.Namespace,
			types.MergePatchType, fmt.Appendf(nil,
				`{"metadata":{"annotations":{"external.metrics.kinproc.dev/queue":"%d"}}}`, length),
			metav1.PatchOptions{}))(t)
	}
	most := 10
	// look makes the loop look at the metrics at once.
	look := func(more string) {
		t.Helper()
		most++
		c.change("d", fmt.Sprintf(`{"spec":{"maxReplicas":%d%s}}`, most, more))
	}
	workloadtest.Until(t, func(ctx context.Context) string {
		if _, err := c.client.Discovery().RESTClient().Get().AbsPath(
			"/apis/external.metrics.k8s.io/v1beta1").DoRaw(ctx); err != nil {
			return err.Error()
		}
		return ""
	})
	queue(0)
	workloadtest.Must(c.autoscalers().Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: "apps/v1", Kind: "Deployment", Name: "d",
			},
			MinReplicas: new(int32(0)), MaxReplicas: 10,
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(0))},
			},
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ExternalMetricSourceType,
				External: &autoscalingv2.ExternalMetricSource{
					Metric: autoscalingv2.MetricIdentifier{Name: "queue"},
					Target: autoscalingv2.MetricTarget{
						Type:         autoscalingv2.AverageValueMetricType,
						AverageValue: new(resource.MustParse("5")),
					},
				},
			}},
		},
	}, metav1.CreateOptions{}))(t)
	c.await("d", autoscalingv2.ScaledToZero, "ScaledToZero", 0)
	c.event("New size: 0; reason: All metrics below target")

	queue(10)
	look("")
	c.await("d", autoscalingv2.ScaledToZero, "NotScaledToZero", 2)
	c.event("New size: 2; reason: external metric queue(nil) above target")

	// A user who scales to zero wants no replicas.
	scale := func(replicas int) {
		t.Helper()
		workloadtest.Must(c.client.AppsV1().Deployments(workloadtest.Namespace).Patch(t.Context(), "d",
			types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas),
			metav1.PatchOptions{}))(t)
	}
	scale(0)
	look("")
	c.await("d", autoscalingv2.ScalingActive, "ScalingDisabled", 0)
	scale(1)
	queue(0)
	look("")
	c.await("d", autoscalingv2.ScaledToZero, "ScaledToZero", 0)

	// What has been scaled to zero gets the replicas that it must have from now on.
	look(`,"minReplicas":3`)
	c.await("d", autoscalingv2.ScaledToZero, "NotScaledToZero", 3)
	c.event("New size: 3; reason: Current number of replicas below Spec.MinReplicas")
	workloadtest.Until(t, func(ctx context.Context) string {
		a, err := c.autoscalers().Get(ctx, "d", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if a.Status.ObservedGeneration == nil || *a.Status.ObservedGeneration != a.Generation {
			return fmt.Sprintf("the loop has seen %v, want %d", a.Status.ObservedGeneration, a.Generation)
		}
		return ""
	})
}
