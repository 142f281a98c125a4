package looptest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	aggregatorclientset "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// metered is a control plane with workloads and metrics.
type metered struct {
	*testing.T
	*server.Server
	client kubernetes.Interface
}

func startMetrics(t *testing.T, configure ...func(*server.Options)) metered {
	t.Helper()
	s := servertest.Run(t, append([]func(*server.Options){servertest.Workloads,
		func(o *server.Options) { o.SimulatedMetrics = true }}, configure...)...)
	return metered{t, s, workloadtest.Client(t, s)}
}

// get gets a path of a metrics API.
func (m metered) get(ctx context.Context, path string, into any, accept ...string) error {
	data, err := m.client.Discovery().RESTClient().Get().RequestURI(path).
		SetHeader("Accept", append(accept, "application/json")...).Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// deploy creates a Deployment whose containers request 200m of CPU and 100Mi of memory.
func (m metered) deploy(name string, replicas int32, pod, workload map[string]string) {
	m.Helper()
	labels := map[string]string{"app": name}
	workloadtest.Must(m.client.AppsV1().Deployments("default").Create(m.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: workload},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: pod},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "c", Image: "i",
					Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{
							corev1.ResourceCPU:    resource.MustParse("200m"),
							corev1.ResourceMemory: resource.MustParse("100Mi"),
						},
						Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
					},
				}}},
			},
		},
	}, metav1.CreateOptions{}))(m.T)
}

// usage returns what the pods of an application use together, once there are as many of them.
func (m metered) usage(app string, pods int) corev1.ResourceList {
	m.Helper()
	sum := corev1.ResourceList{}
	workloadtest.Until(m.T, func(ctx context.Context) string {
		var list metricsv1beta1.PodMetricsList
		err := m.get(ctx, "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3D"+app,
			&list)
		if err != nil {
			return err.Error()
		}
		clear(sum)
		for _, p := range list.Items {
			for _, c := range p.Containers {
				for name, amount := range c.Usage {
					q := sum[name]
					q.Add(amount)
					sum[name] = q
				}
			}
		}
		if len(list.Items) != pods {
			return fmt.Sprintf("%d pods have metrics", len(list.Items))
		}
		return ""
	})
	return sum
}

func (m metered) want(sum corev1.ResourceList, cpu, memory string) {
	m.Helper()
	if sum.Cpu().Cmp(resource.MustParse(cpu)) != 0 ||
		sum.Memory().Cmp(resource.MustParse(memory)) != 0 {
		m.Errorf("used %s of CPU and %s of memory, want %s and %s", sum.Cpu(), sum.Memory(), cpu, memory)
	}
}

// TestMetricsUsage has pods that use what their annotations say, or those of their Deployments.
func TestMetricsUsage(t *testing.T) {
	t.Parallel()
	m := startMetrics(t)
	m.deploy("idle", 2, nil, nil)
	m.deploy("fixed", 1, map[string]string{
		"kinproc.dev/cpu": "250m", "kinproc.dev/memory.c": "64Mi",
	}, nil)
	m.deploy("part", 2, map[string]string{"kinproc.dev/cpu": "50%", "kinproc.dev/memory": "200%"}, nil)
	m.deploy("limit", 1, map[string]string{"kinproc.dev/cpu": "3"}, nil)
	m.deploy("shared", 3, nil, map[string]string{
		"kinproc.dev/cpu": "600m", "kinproc.dev/memory": "300Mi",
	})
	m.want(m.usage("idle", 2), "40m", "20Mi")
	m.want(m.usage("fixed", 1), "250m", "64Mi")
	m.want(m.usage("part", 2), "200m", "400Mi")
	m.want(m.usage("limit", 1), "1", "10Mi")
	workloadtest.Until(t, func(context.Context) string {
		if sum := m.usage("shared", 3); sum.Cpu().MilliValue() != 600 ||
			sum.Memory().Value() != 300<<20 {
			return fmt.Sprintf("used %v", sum)
		}
		return ""
	})

	var nodes metricsv1beta1.NodeMetricsList
	workloadtest.OK(t, m.get(t.Context(), "/apis/metrics.k8s.io/v1beta1/nodes", &nodes))
	if len(nodes.Items) != 1 {
		t.Fatalf("%d nodes have metrics", len(nodes.Items))
	}
	m.want(nodes.Items[0].Usage, "2090m", "794Mi")
	if n := nodes.Items[0]; n.Name != "simulated-0" || n.Window.Duration <= 0 || n.Timestamp.IsZero() {
		t.Errorf("the metrics of the node are %+v", n)
	}
	var table metav1.Table
	workloadtest.OK(t, m.get(t.Context(), "/apis/metrics.k8s.io/v1beta1/nodes/simulated-0", &table,
		"application/json;as=Table;v=v1;g=meta.k8s.io"))
	if len(table.Rows) != 1 || fmt.Sprint(table.Rows[0].Cells[:3]) != "[simulated-0 2090m 794Mi]" {
		t.Errorf("the table of the node is %+v", table)
	}
	var pod metricsv1beta1.PodMetrics
	err := m.get(t.Context(), "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/none", &pod)
	if !apierrors.IsNotFound(err) {
		t.Errorf("the metrics of a pod that does not exist: %v", err)
	}
	err = m.get(t.Context(), "/apis/metrics.k8s.io/v1beta1/pods?fieldSelector=spec.x%3D1", &pod)
	if !apierrors.IsBadRequest(err) {
		t.Errorf("a field that cannot be selected: %v", err)
	}
}

// annotate sets an annotation of the Deployment web.
func (m metered) annotate(key, value string) {
	m.Helper()
	patch := workloadtest.Must(json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{key: value}},
	}))(m.T)
	workloadtest.Must(m.client.AppsV1().Deployments("default").Patch(m.Context(), "web",
		types.MergePatchType, patch, metav1.PatchOptions{}))(m.T)
}

// autoscale creates an autoscaler of the Deployment web that scales down at once.
func (m metered) autoscale(metric autoscalingv2.MetricSpec) {
	m.Helper()
	workloadtest.Must(m.client.AutoscalingV2().HorizontalPodAutoscalers("default").Create(m.Context(),
		&autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
					APIVersion: "apps/v1", Kind: "Deployment", Name: "web",
				},
				MinReplicas: ptr.To[int32](1), MaxReplicas: 6,
				Metrics: []autoscalingv2.MetricSpec{metric},
				Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
					ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To[int32](0)},
				},
			},
		}, metav1.CreateOptions{}))(m.T)
}

// awaitReplicas waits until the Deployment web has as many ready replicas.
func (m metered) awaitReplicas(want int32) {
	m.Helper()
	workloadtest.Until(m.T, func(ctx context.Context) string {
		d, err := m.client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if d.Status.ReadyReplicas == want && *d.Spec.Replicas == want {
			return ""
		}
		a, err := m.client.AutoscalingV2().HorizontalPodAutoscalers("default").Get(ctx, "web",
			metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%d replicas: %+v", d.Status.ReadyReplicas, a.Status.Conditions)
	})
}

// TestMetricsAutoscaler scales by each kind of metric.
func TestMetricsAutoscaler(t *testing.T) {
	t.Parallel()
	utilization := func(name corev1.ResourceName, percent int32) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{
				Name: name, Target: autoscalingv2.MetricTarget{
					Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent,
				},
			},
		}
	}
	identifier := autoscalingv2.MetricIdentifier{Name: "requests_per_second"}
	average := autoscalingv2.MetricTarget{
		Type: autoscalingv2.AverageValueMetricType, AverageValue: ptr.To(resource.MustParse("10")),
	}
	for name, c := range map[string]struct {
		metric    autoscalingv2.MetricSpec
		workload  map[string]string
		namespace map[string]string
	}{
		"CPU": {
			metric: utilization(corev1.ResourceCPU, 80), workload: map[string]string{
				"kinproc.dev/cpu": "480m",
			},
		},
		"memory": {
			metric: utilization(corev1.ResourceMemory, 50), workload: map[string]string{
				"kinproc.dev/memory": "150Mi",
			},
		},
		"pods": {
			metric: autoscalingv2.MetricSpec{
				Type: autoscalingv2.PodsMetricSourceType,
				Pods: &autoscalingv2.PodsMetricSource{Metric: identifier, Target: average},
			},
			workload: map[string]string{"custom.metrics.kinproc.dev/requests_per_second": "30"},
		},
		"object": {
			metric: autoscalingv2.MetricSpec{
				Type: autoscalingv2.ObjectMetricSourceType,
				Object: &autoscalingv2.ObjectMetricSource{
					DescribedObject: autoscalingv2.CrossVersionObjectReference{
						APIVersion: "apps/v1", Kind: "Deployment", Name: "web",
					},
					Metric: identifier, Target: average,
				},
			},
			workload: map[string]string{"custom.metrics.kinproc.dev/requests_per_second": "30"},
		},
		"external": {
			metric: autoscalingv2.MetricSpec{
				Type: autoscalingv2.ExternalMetricSourceType,
				External: &autoscalingv2.ExternalMetricSource{
					Metric: autoscalingv2.MetricIdentifier{
						Name:     "queue_length",
						Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"queue": "mail"}},
					},
					Target: average,
				},
			},
			namespace: map[string]string{
				"external.metrics.kinproc.dev/queue_length": "30 queue=mail\n90 queue=other\n",
			},
		},
	} {
		bubble := func(t *testing.T) {
			m := startMetrics(t, servertest.InBubble)
			if c.namespace != nil {
				patch := workloadtest.Must(json.Marshal(map[string]any{
					"metadata": map[string]any{"annotations": c.namespace},
				}))(t)
				workloadtest.Must(m.client.CoreV1().Namespaces().Patch(t.Context(), "default",
					types.MergePatchType, patch, metav1.PatchOptions{}))(t)
			}
			m.deploy("web", 1, nil, c.workload)
			m.autoscale(c.metric)
			m.awaitReplicas(3)
			if name == "CPU" {
				m.annotate("kinproc.dev/cpu", "10m")
				m.awaitReplicas(1)
			}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, bubble)
		})
	}
}

// TestMetricsOtherServer has a user who installs another server. Its APIService stays, also after
// the next start, and one that was deleted is there again then.
func TestMetricsOtherServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept := func(o *server.Options) { o.DataDir = dir }
	m := startMetrics(t, kept)
	m.deploy("web", 1, nil, nil)
	m.usage("web", 1)
	const name, deleted = "v1beta1.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"
	aggregator := workloadtest.Must(aggregatorclientset.NewForConfig(m.RESTConfig()))(t)
	services := aggregator.ApiregistrationV1().APIServices()
	patch := []byte(`{"spec":{"service":{"namespace":"kube-system","name":"metrics-server"},` +
		`"caBundle":null,"insecureSkipTLSVerify":true}}`)
	workloadtest.Must(services.Patch(t.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{}))(t)
	workloadtest.Until(t, func(ctx context.Context) string {
		return metricsFailed(services.Delete(ctx, deleted, metav1.DeleteOptions{}))
	})
	workloadtest.OK(t, m.Stop(context.Background()))

	m = startMetrics(t, kept)
	aggregator = workloadtest.Must(aggregatorclientset.NewForConfig(m.RESTConfig()))(t)
	services = aggregator.ApiregistrationV1().APIServices()
	workloadtest.Until(t, func(ctx context.Context) string {
		_, err := services.Get(ctx, deleted, metav1.GetOptions{})
		return metricsFailed(err)
	})
	found := workloadtest.Must(services.Get(t.Context(), name, metav1.GetOptions{}))(t)
	if got := found.Spec.Service.Name; got != "metrics-server" {
		t.Errorf("the APIService leads to %s", got)
	}
	workloadtest.OK(t, m.Stop(context.Background()))

	s := servertest.Run(t, kept, servertest.WithoutControllers)
	aggregator = workloadtest.Must(aggregatorclientset.NewForConfig(s.RESTConfig()))(t)
	services = aggregator.ApiregistrationV1().APIServices()
	workloadtest.Until(t, func(ctx context.Context) string {
		_, err := services.Get(ctx, deleted, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Sprintf("without metrics, the APIService is there: %v", err)
		}
		return ""
	})
	workloadtest.Must(services.Get(t.Context(), name, metav1.GetOptions{}))(t)
}

// TestMetricsReset goes back to a state without the APIs, which are there again then.
func TestMetricsReset(t *testing.T) {
	t.Parallel()
	other := startMetrics(t, func(o *server.Options) { o.SimulatedMetrics = false })
	nodesAwait(t, other.client, 1)
	workloadtest.Await(t, "the service account", func(ctx context.Context) (*corev1.ServiceAccount, error) {
		return other.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
	}, func(*corev1.ServiceAccount) bool { return true })
	without := workloadtest.Must(other.Snapshot(t.Context()))(t)
	m := startMetrics(t)
	m.deploy("web", 1, nil, nil)
	m.usage("web", 1)
	workloadtest.OK(t, m.Reset(t.Context(), without))
	m.deploy("web", 2, map[string]string{"kinproc.dev/cpu": "70m"}, nil)
	m.want(m.usage("web", 2), "140m", "20Mi")
}

// TestMetricsDiscovery lists the metrics that there are, and refuses what is none.
func TestMetricsDiscovery(t *testing.T) {
	t.Parallel()
	m := startMetrics(t)
	m.deploy("web", 1, map[string]string{"custom.metrics.kinproc.dev/depth": "1..5 every 1m"}, nil)
	m.usage("web", 1)
	var list metav1.APIResourceList
	// This APIService is registered after that of the usage.
	workloadtest.Until(t, func(ctx context.Context) string {
		return metricsFailed(m.get(ctx, "/apis/custom.metrics.k8s.io/v1beta2", &list))
	})
	if len(list.APIResources) != 1 || list.APIResources[0].Name != "pods/depth" {
		t.Errorf("the custom metrics are %+v", list.APIResources)
	}
	var values struct {
		Items []struct {
			DescribedObject corev1.ObjectReference `json:"describedObject"`
			Value           resource.Quantity      `json:"value"`
		} `json:"items"`
	}
	const all = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/"
	workloadtest.OK(t, m.get(t.Context(), all+"depth", &values))
	if len(values.Items) != 1 || values.Items[0].DescribedObject.Kind != "Pod" ||
		values.Items[0].Value.MilliValue() < 1000 || values.Items[0].Value.MilliValue() > 5000 {
		t.Errorf("the values are %+v", values)
	}
	err := m.get(t.Context(), "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/nothings/a/depth",
		&values)
	if !apierrors.IsNotFound(err) {
		t.Errorf("a metric of an unknown resource: %v", err)
	}
	// A client repeats only reads while the aggregator takes the APIService for unavailable.
	workloadtest.Until(t, func(ctx context.Context) string {
		err := m.client.Discovery().RESTClient().Delete().
			RequestURI("/apis/metrics.k8s.io/v1beta1/pods").Do(ctx).Error()
		if !apierrors.IsMethodNotSupported(err) {
			return fmt.Sprintf("metrics are deleted: %v", err)
		}
		return ""
	})
}

// metricsFailed returns an error as a complaint.
func metricsFailed(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}
