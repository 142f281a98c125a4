package horizontalpodautoscaler_test

import (
	"context"
	"crypto/tls"
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	typedautoscalingv2 "k8s.io/client-go/kubernetes/typed/autoscaling/v2"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/horizontalpodautoscaler"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// patience is longer than the period of the controller.
const patience = 40 * time.Second

// metricsServer serves metrics.k8s.io. Each of the pods uses the same amount of CPU.
type metricsServer struct {
	pods     []string
	milliCPU atomic.Int64
	asked    atomic.Int64 // how often
	hold     sync.RWMutex // no answers while it is locked
}

func (m *metricsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

// cluster is a control plane with the loop and the Deployment "d".
type cluster struct {
	*testing.T
	*server.Server
	client kubernetes.Interface
}

func start(t *testing.T, configure ...func(*server.Options)) cluster {
	t.Helper()
	s := servertest.Run(t, append([]func(*server.Options){func(o *server.Options) {
		o.Controllers = []string{"serviceaccount-controller", horizontalpodautoscaler.Name}
	}}, configure...)...)
	return cluster{t, s, workloadtest.Client(t, s)}
}

// serve adds the API of metrics to the control plane.
func (c cluster) serve(metrics *metricsServer) {
	c.Helper()
	e := servertest.NewEndpoint(c.T)
	listener, err := tls.Listen("tcp", e.Addr(), e.TLS)
	if err != nil {
		c.Fatal(err)
	}
	serving := &http.Server{Handler: metrics, ReadHeaderTimeout: patience}
	ended := make(chan error)
	go func() { ended <- serving.Serve(listener) }()
	c.Cleanup(func() {
		_ = serving.Close()
		<-ended
	})
	servertest.APIService(c.T, c.Server, e,
		schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"})
}

func (c cluster) autoscalers() typedautoscalingv2.HorizontalPodAutoscalerInterface {
	return c.client.AutoscalingV2().HorizontalPodAutoscalers("default")
}

// create creates an autoscaler of the Deployment.
func (c cluster) create(name string, behavior autoscalingv2.HorizontalPodAutoscalerBehavior) {
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

func (c cluster) delete(autoscaler string) {
	c.Helper()
	workloadtest.OK(c.T, c.autoscalers().Delete(c.Context(), autoscaler, metav1.DeleteOptions{}))
}

// change changes an autoscaler, which makes the loop look at the metrics at once.
func (c cluster) change(autoscaler, patch string) {
	c.Helper()
	workloadtest.Must(c.autoscalers().Patch(c.Context(), autoscaler, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}))(c.T)
}

// await waits for a condition of an autoscaler and a number of replicas of the Deployment.
func (c cluster) await(
	autoscaler string, conditionType autoscalingv2.HorizontalPodAutoscalerConditionType,
	reason string, replicas int32,
) {
	c.Helper()
	var last *autoscalingv2.HorizontalPodAutoscaler
	var size int32
	err := wait.PollUntilContextTimeout(c.Context(), 5*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			var err error
			if last, err = c.autoscalers().Get(ctx, autoscaler, metav1.GetOptions{}); err != nil {
				return false, err
			}
			d, err := c.client.AppsV1().Deployments("default").Get(ctx, "d", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			size = *d.Spec.Replicas
			return size == replicas && slices.ContainsFunc(last.Status.Conditions,
				func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
					return c.Type == conditionType && c.Reason == reason
				}), nil
		})
	if err != nil {
		c.Fatalf("want %s %s and %d replicas: %v; %d replicas, %+v", conditionType, reason, replicas,
			err, size, last.Status)
	}
}

func TestAutoscaler(t *testing.T) {
	t.Parallel()
	c := start(t)
	metrics := &metricsServer{pods: []string{"a", "b"}}
	target(t, c.client, metrics.pods)
	c.create("d", autoscalingv2.HorizontalPodAutoscalerBehavior{})
	c.await("d", autoscalingv2.AbleToScale, "SucceededRescale", 2)
	c.change("d", `{"spec":{"maxReplicas":11}}`)
	c.await("d", autoscalingv2.ScalingActive, "FailedGetResourceMetric", 2)

	metrics.milliCPU.Store(200)
	c.serve(metrics)
	// 200 % of the request are 2.5 times the target.
	c.change("d", `{"spec":{"maxReplicas":12}}`)
	c.await("d", autoscalingv2.ScalingActive, "ValidMetricFound", 5)
	event(t, c.client, "New size: 5; reason: cpu resource utilization (percentage of request) above "+
		"target")
	metrics.milliCPU.Store(10)
	c.change("d", `{"spec":{"maxReplicas":13}}`)
	c.await("d", autoscalingv2.AbleToScale, "ScaleDownStabilized", 5)
	c.change("d", `{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0}}}}`)
	c.await("d", autoscalingv2.ScalingLimited, "TooFewReplicas", 2)
	event(t, c.client, "New size: 2; reason: All metrics below target")
}

// TestRecreated replaces an autoscaler while the loop looks at it, and adds another one for the
// same pods.
func TestRecreated(t *testing.T) {
	t.Parallel()
	c := start(t)
	metrics := &metricsServer{pods: []string{"a", "b"}}
	metrics.milliCPU.Store(120)
	target(t, c.client, metrics.pods)
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

// TestRestart replaces the target and an autoscaler while the loop does not run.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	configure := func(o *server.Options) { o.DataDir = dir }
	c := start(t, configure)
	target(t, c.client, nil)
	c.create("d", autoscalingv2.HorizontalPodAutoscalerBehavior{})
	c.await("d", autoscalingv2.AbleToScale, "SucceededRescale", 2)
	workloadtest.OK(t, c.Stop(t.Context()))

	c = start(t, configure, servertest.WithoutControllers)
	workloadtest.OK(t, c.client.AppsV1().Deployments("default").Delete(t.Context(), "d",
		metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}))
	target(t, c.client, nil)
	c.delete("d")
	c.create("d", autoscalingv2.HorizontalPodAutoscalerBehavior{})
	c.change("d", `{"spec":{"minReplicas":4}}`)
	workloadtest.OK(t, c.Stop(t.Context()))

	c = start(t, configure)
	c.await("d", autoscalingv2.AbleToScale, "SucceededRescale", 4)
}

// target creates a Deployment and pods of it that have run for a while.
func target(t *testing.T, client kubernetes.Interface, names []string) {
	t.Helper()
	ctx := t.Context()
	labels := map[string]string{"app": "d"}
	spec := corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Image: "i",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"),
		}},
	}}}
	if _, err := client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, patience, true,
			func(ctx context.Context) (bool, error) {
				_, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: spec,
				}, metav1.CreateOptions{})
				// The service account of the namespace may not be there yet.
				if apierrors.IsForbidden(err) {
					return false, nil
				}
				return true, err
			}); err != nil {
			t.Fatal(err)
		}
		status, err := json.Marshal(map[string]any{"status": corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: new(metav1.NewTime(time.Now().Add(-time.Hour))),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Pods("default").Patch(ctx, name, types.StrategicMergePatchType,
			status, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
}

// event waits until there is an event with a message.
func event(t *testing.T, client kubernetes.Interface, message string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			list, err := client.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			for _, e := range list.Items {
				if e.Reason == "SuccessfulRescale" && e.Message == message &&
					e.Source.Component == horizontalpodautoscaler.Component {
					return true, nil
				}
			}
			return false, nil
		})
	if err != nil {
		t.Fatalf("no event %q: %v", message, err)
	}
}
