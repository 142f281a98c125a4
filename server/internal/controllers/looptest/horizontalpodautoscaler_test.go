package looptest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedautoscalingv2 "k8s.io/client-go/kubernetes/typed/autoscaling/v2"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/autoscaling/horizontalpodautoscalers"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// horizontalPodAutoscalerMetrics serves metrics.k8s.io. Each of the pods uses the same amount of
// CPU.
type horizontalPodAutoscalerMetrics struct {
	pods     []string
	milliCPU atomic.Int64
	asked    atomic.Int64 // how often
	hold     sync.RWMutex // no answers while it is locked
}

func (m *horizontalPodAutoscalerMetrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch r.URL.Path {
	case "/apis/metrics.k8s.io/v1beta1":
		answer = metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: "metrics.k8s.io/v1beta1",
			APIResources: []metav1.APIResource{{
				Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: metav1.Verbs{"get", "list"},
			}},
		}
	case "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods":
		m.asked.Add(1)
		m.hold.RLock()
		defer m.hold.RUnlock()
		items := []any{}
		for _, name := range m.pods {
			items = append(items, map[string]any{
				"metadata":  map[string]any{"name": name, "namespace": "default"},
				"timestamp": metav1.Now(), "window": "10s",
				"containers": []any{map[string]any{
					"name": "c", "usage": map[string]any{"cpu": fmt.Sprint(m.milliCPU.Load(), "m")},
				}},
			})
		}
		answer = map[string]any{
			"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items,
		}
	default:
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// horizontalPodAutoscaler is a control plane with the loop and the Deployment "d".
type horizontalPodAutoscaler struct {
	*testing.T
	*server.Server
	client kubernetes.Interface
}

func startHorizontalPodAutoscaler(
	t *testing.T, configure ...func(*server.Options),
) horizontalPodAutoscaler {
	t.Helper()
	s := servertest.Run(t, append([]func(*server.Options){func(o *server.Options) {
		o.Controllers = []string{"serviceaccount-controller", horizontalpodautoscalers.Name}
	}}, configure...)...)
	return horizontalPodAutoscaler{t, s, workloadtest.Client(t, s)}
}

// serve adds the API of metrics to the control plane.
func (c horizontalPodAutoscaler) serve(metrics *horizontalPodAutoscalerMetrics) {
	c.Helper()
	e := servertest.NewEndpoint(c.T, c.Server)
	listener, err := e.Listen()
	if err != nil {
		c.Fatal(err)
	}
	serving := &http.Server{Handler: metrics, ReadHeaderTimeout: time.Minute}
	ended := make(chan error)
	go func() { ended <- serving.Serve(listener) }()
	c.Cleanup(func() {
		_ = serving.Close()
		<-ended
	})
	servertest.APIService(c.T, c.Server, e,
		schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"})
}

func (c horizontalPodAutoscaler) autoscalers() typedautoscalingv2.HorizontalPodAutoscalerInterface {
	return c.client.AutoscalingV2().HorizontalPodAutoscalers(workloadtest.Namespace)
}

// target creates the Deployment and pods of it that have run for a while.
func (c horizontalPodAutoscaler) target(pods ...string) {
	c.Helper()
	labels := map[string]string{"app": "d"}
	spec := corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Image: "i",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"),
		}},
	}}}
	deployments := c.client.AppsV1().Deployments(workloadtest.Namespace)
	workloadtest.Must(deployments.Create(c.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{}))(c.T)
	for _, name := range pods {
		workloadtest.Until(c.T, func(ctx context.Context) string {
			// The service account of the namespace may not be there yet.
			if _, err := c.client.CoreV1().Pods(workloadtest.Namespace).Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: spec,
			}, metav1.CreateOptions{}); err != nil {
				return err.Error()
			}
			return ""
		})
		status := workloadtest.Must(json.Marshal(map[string]any{"status": corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: new(metav1.NewTime(time.Now().Add(-time.Hour))),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}}))(c.T)
		workloadtest.Must(c.client.CoreV1().Pods(workloadtest.Namespace).Patch(c.Context(), name,
			types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status"))(c.T)
	}
}

// event waits until there is an event with a message.
func (c horizontalPodAutoscaler) event(message string) {
	c.Helper()
	workloadtest.Await(c.T, "the event "+message,
		func(ctx context.Context) (*corev1.EventList, error) {
			return c.client.CoreV1().Events(workloadtest.Namespace).List(ctx, metav1.ListOptions{})
		}, func(list *corev1.EventList) bool {
			return slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
				return e.Reason == "SuccessfulRescale" && e.Message == message &&
					e.Source.Component == horizontalpodautoscalers.Component
			})
		})
}

// create creates an autoscaler of the Deployment.
func (c horizontalPodAutoscaler) create(
	name string, behavior autoscalingv2.HorizontalPodAutoscalerBehavior,
) {
	c.Helper()
	workloadtest.Must(c.autoscalers().Create(c.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: "apps/v1", Kind: "Deployment", Name: "d",
			},
			MinReplicas: new(int32(2)), MaxReplicas: 10, Behavior: &behavior,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{
					Name: corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{
						Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(80)),
					},
				},
			}},
		},
	}, metav1.CreateOptions{}))(c.T)
}

func (c horizontalPodAutoscaler) delete(autoscaler string) {
	c.Helper()
	workloadtest.OK(c.T, c.autoscalers().Delete(c.Context(), autoscaler, metav1.DeleteOptions{}))
}

// change changes an autoscaler, which makes the loop look at the metrics at once.
func (c horizontalPodAutoscaler) change(autoscaler, patch string) {
	c.Helper()
	workloadtest.Must(c.autoscalers().Patch(c.Context(), autoscaler, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}))(c.T)
}

// await waits for a condition of an autoscaler and a number of replicas of the Deployment.
func (c horizontalPodAutoscaler) await(
	autoscaler string, conditionType autoscalingv2.HorizontalPodAutoscalerConditionType,
	reason string, replicas int32,
) {
	c.Helper()
	workloadtest.Until(c.T, func(ctx context.Context) string {
		a, err := c.autoscalers().Get(ctx, autoscaler, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		d, err := c.client.AppsV1().Deployments(workloadtest.Namespace).Get(ctx, "d", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if *d.Spec.Replicas != replicas || !slices.ContainsFunc(a.Status.Conditions,
			func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
				return c.Type == conditionType && c.Reason == reason
			}) {
			return fmt.Sprintf("want %s %s and %d replicas; %d replicas, %+v", conditionType, reason,
				replicas, *d.Spec.Replicas, a.Status)
		}
		return ""
	})
}

func TestHorizontalPodAutoscaler(t *testing.T) {
	t.Parallel()
	c := startHorizontalPodAutoscaler(t)
	metrics := &horizontalPodAutoscalerMetrics{pods: []string{"a", "b"}}
	c.target(metrics.pods...)
	c.create("d", autoscalingv2.HorizontalPodAutoscalerBehavior{})
	c.await("d", autoscalingv2.AbleToScale, "SucceededRescale", 2)
	c.change("d", `{"spec":{"maxReplicas":11}}`)
	c.await("d", autoscalingv2.ScalingActive, "FailedGetResourceMetric", 2)

	metrics.milliCPU.Store(200)
	c.serve(metrics)
	// 200 % of the request are 2.5 times the target.
	c.change("d", `{"spec":{"maxReplicas":12}}`)
	c.await("d", autoscalingv2.ScalingActive, "ValidMetricFound", 5)
	c.event("New size: 5; reason: cpu resource utilization (percentage of request) above " +
		"target")
	metrics.milliCPU.Store(10)
	c.change("d", `{"spec":{"maxReplicas":13}}`)
	c.await("d", autoscalingv2.AbleToScale, "ScaleDownStabilized", 5)
	c.change("d", `{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0}}}}`)
	c.await("d", autoscalingv2.ScalingLimited, "TooFewReplicas", 2)
	c.event("New size: 2; reason: All metrics below target")
}

// TestHorizontalPodAutoscalerRecreated replaces an autoscaler while the loop looks at it, and adds
// another one for the same pods.
func TestHorizontalPodAutoscalerRecreated(t *testing.T) {
	t.Parallel()
	c := startHorizontalPodAutoscaler(t)
	metrics := &horizontalPodAutoscalerMetrics{pods: []string{"a", "b"}}
	metrics.milliCPU.Store(120)
	c.target(metrics.pods...)
	c.serve(metrics)
	slow := autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleUp: &autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PodsScalingPolicy, Value: 2, PeriodSeconds: 1800},
		}},
	}
	c.create("d", slow)
	c.await("d", autoscalingv2.AbleToScale, "SucceededRescale", 2)
	c.change("d", `{"spec":{"maxReplicas":11}}`)
	c.await("d", autoscalingv2.ScalingActive, "ValidMetricFound", 3)

	metrics.milliCPU.Store(200)
	metrics.hold.Lock()
	asked := metrics.asked.Load()
	c.change("d", `{"spec":{"maxReplicas":12}}`)
	workloadtest.Await(t, "a look at the metrics",
		func(context.Context) (int64, error) { return metrics.asked.Load(), nil },
		func(now int64) bool { return now > asked })
	c.delete("d")
	c.create("d", slow)
	metrics.hold.Unlock()
	// The second autoscaler may add two pods more, whatever the first one did.
	c.await("d", autoscalingv2.AbleToScale, "SucceededRescale", 5)

	metrics.milliCPU.Store(400)
	c.create("e", autoscalingv2.HorizontalPodAutoscalerBehavior{})
	c.await("e", autoscalingv2.ScalingActive, "AmbiguousSelector", 5)
	c.change("d", `{"spec":{"maxReplicas":13}}`)
	c.await("d", autoscalingv2.ScalingActive, "AmbiguousSelector", 5)
	c.delete("d")
	c.change("e", `{"spec":{"maxReplicas":7}}`)
	c.await("e", autoscalingv2.ScalingLimited, "TooManyReplicas", 7)
}

// TestHorizontalPodAutoscalerRestart replaces the target and an autoscaler while the loop does not
// run.
func TestHorizontalPodAutoscalerRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	configure := func(o *server.Options) { o.DataDir = dir }
	c := startHorizontalPodAutoscaler(t, configure)
	c.target()
	c.create("d", autoscalingv2.HorizontalPodAutoscalerBehavior{})
	c.await("d", autoscalingv2.AbleToScale, "SucceededRescale", 2)
	workloadtest.OK(t, c.Stop(t.Context()))

	c = startHorizontalPodAutoscaler(t, configure, servertest.WithoutControllers)
	workloadtest.OK(t, c.client.AppsV1().Deployments(workloadtest.Namespace).Delete(t.Context(), "d",
		metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}))
	c.target()
	c.delete("d")
	c.create("d", autoscalingv2.HorizontalPodAutoscalerBehavior{})
	c.change("d", `{"spec":{"minReplicas":4}}`)
	workloadtest.OK(t, c.Stop(t.Context()))

	c = startHorizontalPodAutoscaler(t, configure)
	c.await("d", autoscalingv2.AbleToScale, "SucceededRescale", 4)
}
