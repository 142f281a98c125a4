package horizontalpodautoscaler_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
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

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/horizontalpodautoscaler"
	"github.com/kinproc/kinproc/server/servertest"
)

// patience is longer than the period of the controller.
const patience = 40 * time.Second

// metricsServer serves metrics.k8s.io. Each of the pods uses the same amount of CPU.
type metricsServer struct {
	pods     []string
	milliCPU atomic.Int64
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

func TestAutoscaler(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.Controllers = []string{"serviceaccount-controller", horizontalpodautoscaler.Name}
	})
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	metrics := &metricsServer{pods: []string{"a", "b"}}
	target(t, client, metrics.pods)
	autoscalers := client.AutoscalingV2().HorizontalPodAutoscalers("default")
	if _, err := autoscalers.Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: "apps/v1", Kind: "Deployment", Name: "d",
			},
			MinReplicas: new(int32(2)), MaxReplicas: 10,
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{},
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
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// await waits for a condition and a number of replicas.
	await := func(conditionType autoscalingv2.HorizontalPodAutoscalerConditionType, reason string,
		replicas int32) {
		t.Helper()
		var last *autoscalingv2.HorizontalPodAutoscaler
		var size int32
		err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, patience, true,
			func(ctx context.Context) (bool, error) {
				var err error
				if last, err = autoscalers.Get(ctx, "d", metav1.GetOptions{}); err != nil {
					return false, err
				}
				d, err := client.AppsV1().Deployments("default").Get(ctx, "d", metav1.GetOptions{})
				if err != nil {
					return false, err
				}
				size = *d.Spec.Replicas
				for _, c := range last.Status.Conditions {
					if c.Type == conditionType && c.Reason == reason && size == replicas {
						return true, nil
					}
				}
				return false, nil
			})
		if err != nil {
			t.Fatalf("want %s %s and %d replicas: %v; %d replicas, %+v", conditionType, reason, replicas,
				err, size, last.Status)
		}
	}
	// change makes the controller look at the metrics at once.
	change := func(patch string) {
		t.Helper()
		if _, err := autoscalers.Patch(ctx, "d", types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	await(autoscalingv2.AbleToScale, "SucceededRescale", 2)
	change(`{"spec":{"maxReplicas":11}}`)
	await(autoscalingv2.ScalingActive, "FailedGetResourceMetric", 2)

	e := servertest.NewEndpoint(t)
	listener, err := tls.Listen("tcp", e.Addr(), e.TLS)
	if err != nil {
		t.Fatal(err)
	}
	serving := &http.Server{Handler: metrics, ReadHeaderTimeout: patience}
	ended := make(chan error)
	go func() { ended <- serving.Serve(listener) }()
	t.Cleanup(func() {
		_ = serving.Close()
		<-ended
	})
	metrics.milliCPU.Store(200)
	servertest.APIService(t, s, e, schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"})
	// 200 % of the request are 2.5 times the target.
	change(`{"spec":{"maxReplicas":12}}`)
	await(autoscalingv2.ScalingActive, "ValidMetricFound", 5)
	event(t, client, "New size: 5; reason: cpu resource utilization (percentage of request) above "+
		"target")
	metrics.milliCPU.Store(10)
	change(`{"spec":{"maxReplicas":13}}`)
	await(autoscalingv2.AbleToScale, "ScaleDownStabilized", 5)
	change(`{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0}}}}`)
	await(autoscalingv2.ScalingLimited, "TooFewReplicas", 2)
	event(t, client, "New size: 2; reason: All metrics below target")
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
