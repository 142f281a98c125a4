package horizontalpodautoscalers

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// answers are what the servers of metrics answer, by path. Each of two pods uses 150m of CPU in one
// container and 10m in the other.
var answers = map[string]string{
	"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[
		{"name":"services","kind":"Service","namespaced":true}]}`,
	"/apis/metrics.k8s.io/v1beta1/namespaces/default/pods": `{"items":[
		{"metadata":{"name":"a"},"containers":[
			{"name":"c","usage":{"cpu":"150m"}},{"name":"side","usage":{"cpu":"10m"}}]},
		{"metadata":{"name":"b"},"containers":[
			{"name":"c","usage":{"cpu":"150m"}},{"name":"side","usage":{"cpu":"10m"}}]}]}`,
	"/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/hits": `{"items":[
		{"describedObject":{"name":"a"},"value":"30"},{"describedObject":{"name":"b"},"value":"10"}]}`,
	"/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/services/s/hits": `{"items":[
		{"describedObject":{"name":"s"},"value":"7"}]}`,
	"/apis/external.metrics.k8s.io/v1beta1/namespaces/default/hits": `{"items":[
		{"value":"4"},{"value":"5"}]}`,
}

// newMeasurement returns a measurement of a target with two replicas and the given pods.
func newMeasurement(t *testing.T, pods ...string) *measurement {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, answer)
	}))
	t.Cleanup(s.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	informer := cache.NewSharedIndexInformer(nil, &corev1.Pod{}, 0, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
	}) // never started
	requests := corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"),
	}}
	for _, name := range pods {
		if err := informer.GetIndexer().Add(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, Labels: map[string]string{"app": "d"},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Name: "c", Resources: requests}, {Name: "side", Resources: requests},
			}},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, StartTime: new(metav1.NewTime(time.Now().Add(-time.Hour))),
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		}); err != nil {
			t.Fatal(err)
		}
	}
	return &measurement{
		autoscaler: &autoscaler{
			controller: &controller{
				Controller: &loop.Controller{Dependencies: loop.Dependencies{Client: client}},
				pods:       informer, metrics: metricsClient{client.Discovery().RESTClient()},
			},
			HorizontalPodAutoscaler: &autoscalingv2.HorizontalPodAutoscaler{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "h"},
			},
			now: time.Now(),
		},
		selector: labels.SelectorFromSet(labels.Set{"app": "d"}), current: 2, running: 2,
	}
}

func quantity(s string) *resource.Quantity { return new(resource.MustParse(s)) }

// The metrics of the tests, with a target.
func ofContainer(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
		Name: corev1.ResourceCPU, Container: "c", Target: target,
	}}
}

var hits = autoscalingv2.MetricIdentifier{Name: "hits"}

func ofPods(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Pods: &autoscalingv2.PodsMetricSource{Metric: hits, Target: target},
	}
}

func ofService(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Object: &autoscalingv2.ObjectMetricSource{
		DescribedObject: autoscalingv2.CrossVersionObjectReference{
			APIVersion: "v1", Kind: "Service", Name: "s",
		},
		Metric: hits, Target: target,
	}}
}

func external(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		External: &autoscalingv2.ExternalMetricSource{Metric: hits, Target: target},
	}
}

// currentOf returns the measured value in the status of a metric.
func currentOf(s *autoscalingv2.MetricStatus) autoscalingv2.MetricValueStatus {
	switch {
	case s.ContainerResource != nil:
		return s.ContainerResource.Current
	case s.Pods != nil:
		return s.Pods.Current
	case s.Object != nil:
		return s.Object.Current
	case s.External != nil:
		return s.External.Current
	}
	return autoscalingv2.MetricValueStatus{}
}

// TestMeasure works out how many replicas the metrics of each kind ask for.
func TestMeasure(t *testing.T) {
	t.Parallel()
	type (
		target = autoscalingv2.MetricTarget
		value  = autoscalingv2.MetricValueStatus
	)
	for name, test := range map[string]struct {
		spec     autoscalingv2.MetricSpec
		replicas int32
		metric   string
		current  value
	}{
		"utilization of a container": {
			ofContainer(target{AverageUtilization: new(int32(50))}), 6,
			"cpu container resource utilization (percentage of request)",
			value{AverageValue: quantity("150m"), AverageUtilization: new(int32(150))},
		},
		"usage of a container": {
			ofContainer(target{AverageValue: quantity("100m")}), 3, "cpu resource",
			value{AverageValue: quantity("150m")},
		},
		"pods": {
			ofPods(target{AverageValue: quantity("10")}), 4, "pods metric hits",
			value{AverageValue: quantity("20")},
		},
		"object": {
			ofService(target{Value: quantity("2")}), 7, "Service metric hits",
			value{Value: quantity("7")},
		},
		"object per pod": {
			ofService(target{AverageValue: quantity("2")}), 4, "external metric hits(nil)",
			value{AverageValue: quantity("3500m")},
		},
		"external": {
			external(target{Value: quantity("3")}), 6, "external metric hits(nil)",
			value{Value: quantity("9")},
		},
		"external, near enough": {
			external(target{AverageValue: quantity("4400m")}), 2, "external metric hits(nil)",
			value{AverageValue: quantity("4500m")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMeasurement(t, "a", "b")
			replicas, metric, status, err := m.measure(t.Context(), &test.spec)
			if err != nil {
				t.Fatal(err)
			}
			if current := currentOf(&status); replicas != test.replicas || metric != test.metric ||
				!equality.Semantic.DeepEqual(current, test.current) {
				t.Errorf("%d replicas by %s, %+v; want %d by %s, %+v", replicas, metric, current,
					test.replicas, test.metric, test.current)
			}
		})
	}
}

// TestMeasureWithoutPods keeps the number of replicas while the target has no pods yet.
func TestMeasureWithoutPods(t *testing.T) {
	t.Parallel()
	m := newMeasurement(t)
	for _, spec := range []autoscalingv2.MetricSpec{
		ofPods(autoscalingv2.MetricTarget{AverageValue: quantity("10")}),
		ofService(autoscalingv2.MetricTarget{Value: quantity("2")}),
		external(autoscalingv2.MetricTarget{Value: quantity("3")}),
	} {
		if replicas, _, _, err := m.measure(t.Context(), &spec); !errors.Is(err, errNoPods) {
			t.Errorf("%d replicas and the error %v, want the error %v", replicas, err, errNoPods)
		}
	}
}
