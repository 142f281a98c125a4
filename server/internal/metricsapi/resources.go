package metricsapi

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/kinproc/kinproc/server/internal/simulated"
)

// window is the time over which the usage is said to have been measured. It is short: what a pod
// uses is known from its start.
const window = time.Second

// selectors say which objects of a list a client wants.
type selectors struct {
	labels labels.Selector
	fields fields.Selector
}

func selectorsOf(r *http.Request) (s selectors, err error) {
	query := r.URL.Query()
	if watch := query.Get("watch"); watch != "" && watch != "false" && watch != "0" {
		return s, apierrors.NewMethodNotSupported(
			resourceMetrics.WithResource("pods").GroupResource(), "watch")
	}
	if s.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return s, apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	if s.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return s, apierrors.NewBadRequest(fmt.Sprintf("fieldSelector: %v", err))
	}
	for _, requirement := range s.fields.Requirements() {
		if f := requirement.Field; f != "metadata.name" && f != "metadata.namespace" {
			return s, apierrors.NewBadRequest(fmt.Sprintf(
				"fieldSelector: %q is not supported: use metadata.name or metadata.namespace", f))
		}
	}
	return s, nil
}

func (s selectors) match(object metav1.Object) bool {
	return s.labels.Matches(labels.Set(object.GetLabels())) && s.fields.Matches(fields.Set{
		"metadata.name": object.GetName(), "metadata.namespace": object.GetNamespace(),
	})
}

// resource answers requests for metrics.k8s.io.
func (a *API) resource(r *http.Request, path []string) (any, error) {
	s, err := selectorsOf(r)
	if err != nil {
		return nil, err
	}
	switch {
	case path[0] == "nodes" && len(path) == 1:
		return a.nodeList(r, s)
	case path[0] == "nodes" && len(path) == 2:
		return a.node(r, path[1])
	case path[0] == "pods" && len(path) == 1:
		return a.podList(r, "", s)
	case path[0] == "namespaces" && len(path) == 3 && path[2] == "pods":
		return a.podList(r, path[1], s)
	case path[0] == "namespaces" && len(path) == 4 && path[2] == "pods":
		return a.pod(r, path[1], path[3])
	}
	return nil, unknown(r)
}

// used returns what the containers of a pod on a simulated node use.
func (a *API) used(p *corev1.Pod, loads *loads, now time.Time) []simulated.ContainerUsage {
	n, err := a.nodes.Get(p.Spec.NodeName)
	if err != nil || !a.config.Simulates(n) {
		return nil
	}
	return simulated.Usage(a.config.Behaves(p), loads.of(p), now)
}

func (a *API) podMetrics(
	p *corev1.Pod, loads *loads, now time.Time,
) (metricsv1beta1.PodMetrics, bool) {
	m := metricsv1beta1.PodMetrics{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: p.Namespace, Labels: p.Labels, CreationTimestamp: metav1.NewTime(now),
		},
		Timestamp: metav1.NewTime(now), Window: metav1.Duration{Duration: window},
	}
	for _, c := range a.used(p, loads, now) {
		m.Containers = append(m.Containers, metricsv1beta1.ContainerMetrics(c))
	}
	return m, len(m.Containers) > 0
}

func (a *API) podList(r *http.Request, namespace string, s selectors) (any, error) {
	now, loads := time.Now(), a.newLoads()
	pods, err := a.pods.Pods(namespace).List(s.labels)
	if err != nil {
		return nil, err
	}
	list := metricsv1beta1.PodMetricsList{
		TypeMeta: typeOf("PodMetricsList"), Items: []metricsv1beta1.PodMetrics{},
	}
	for _, p := range pods {
		if !s.match(p) {
			continue
		}
		if m, ok := a.podMetrics(p, loads, now); ok {
			list.Items = append(list.Items, m)
		}
	}
	slices.SortFunc(list.Items, func(a, b metricsv1beta1.PodMetrics) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if !asTable(r) {
		return list, nil
	}
	var rows []metav1.TableRow
	for i := range list.Items {
		rows = append(rows, podRow(&list.Items[i]))
	}
	return table(rows), nil
}

func (a *API) pod(r *http.Request, namespace, name string) (any, error) {
	p, err := a.pods.Pods(namespace).Get(name)
	var m metricsv1beta1.PodMetrics
	ok := false
	if err == nil {
		m, ok = a.podMetrics(p, a.newLoads(), time.Now())
	}
	if !ok {
		return nil, apierrors.NewNotFound(resourceMetrics.WithResource("podmetrics").GroupResource(),
			namespace+"/"+name)
	}
	m.TypeMeta = typeOf("PodMetrics")
	if asTable(r) {
		return table([]metav1.TableRow{podRow(&m)}), nil
	}
	return m, nil
}

// nodeMetrics returns what nodes use: as much as their pods do.
func (a *API) nodeMetrics(now time.Time) ([]metricsv1beta1.NodeMetrics, error) {
	nodes, err := a.nodes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	pods, err := a.pods.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	used, loads := map[string]corev1.ResourceList{}, a.newLoads()
	for _, p := range pods {
		for _, c := range a.used(p, loads, now) {
			if used[p.Spec.NodeName] == nil {
				used[p.Spec.NodeName] = corev1.ResourceList{}
			}
			add(used[p.Spec.NodeName], c.Usage)
		}
	}
	list := []metricsv1beta1.NodeMetrics{}
	for _, n := range nodes {
		if !a.config.Simulates(n) {
			continue
		}
		m := metricsv1beta1.NodeMetrics{
			ObjectMeta: metav1.ObjectMeta{
				Name: n.Name, Labels: n.Labels, CreationTimestamp: metav1.NewTime(now),
			},
			Timestamp: metav1.NewTime(now), Window: metav1.Duration{Duration: window},
			Usage: corev1.ResourceList{corev1.ResourceCPU: {}, corev1.ResourceMemory: {}},
		}
		add(m.Usage, used[n.Name])
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b metricsv1beta1.NodeMetrics) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return list, nil
}

func add(sum, to corev1.ResourceList) {
	for name, amount := range to {
		q := sum[name]
		q.Add(amount)
		sum[name] = q
	}
}

func (a *API) nodeList(r *http.Request, s selectors) (any, error) {
	all, err := a.nodeMetrics(time.Now())
	if err != nil {
		return nil, err
	}
	list := metricsv1beta1.NodeMetricsList{
		TypeMeta: typeOf("NodeMetricsList"),
		Items: slices.DeleteFunc(all, func(m metricsv1beta1.NodeMetrics) bool {
			return !s.match(&m)
		}),
	}
	if !asTable(r) {
		return list, nil
	}
	var rows []metav1.TableRow
	for i := range list.Items {
		rows = append(rows, nodeRow(&list.Items[i]))
	}
	return table(rows), nil
}

func (a *API) node(r *http.Request, name string) (any, error) {
	all, err := a.nodeMetrics(time.Now())
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(m metricsv1beta1.NodeMetrics) bool { return m.Name == name })
	if i < 0 {
		return nil, apierrors.NewNotFound(resourceMetrics.WithResource("nodemetrics").GroupResource(),
			name)
	}
	m := &all[i]
	m.TypeMeta = typeOf("NodeMetrics")
	if asTable(r) {
		return table([]metav1.TableRow{nodeRow(m)}), nil
	}
	return m, nil
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: resourceMetrics.String()}
}

// table returns a table with metrics-server's columns.
func table(rows []metav1.TableRow) metav1.Table {
	return metav1.Table{
		TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: metav1.SchemeGroupVersion.String()},
		ColumnDefinitions: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the resource"},
			{Name: "cpu", Type: "quantity", Format: "quantity"},
			{Name: "memory", Type: "quantity", Format: "quantity"},
			{Name: "Window", Type: "duration", Format: "duration"},
		},
		Rows: slices.Concat([]metav1.TableRow{}, rows),
	}
}

func podRow(m *metricsv1beta1.PodMetrics) metav1.TableRow {
	sum := corev1.ResourceList{}
	for _, c := range m.Containers {
		add(sum, c.Usage)
	}
	partial := &metav1.PartialObjectMetadata{ObjectMeta: m.ObjectMeta}
	return row(partial, sum, m.Window)
}

func nodeRow(m *metricsv1beta1.NodeMetrics) metav1.TableRow {
	return row(&metav1.PartialObjectMetadata{ObjectMeta: m.ObjectMeta}, m.Usage, m.Window)
}

func row(
	of *metav1.PartialObjectMetadata, usage corev1.ResourceList, window metav1.Duration,
) metav1.TableRow {
	of.TypeMeta = metav1.TypeMeta{
		Kind: "PartialObjectMetadata", APIVersion: metav1.SchemeGroupVersion.String(),
	}
	return metav1.TableRow{
		Cells: []any{
			of.Name, usage.Cpu().String(), usage.Memory().String(), window.Duration.String(),
		},
		Object: runtime.RawExtension{Object: of},
	}
}
