package horizontalpodautoscalers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// What is known of a young pod says little about its load.
const (
	cpuInitialization = 5 * time.Minute
	initialReadiness  = 30 * time.Second
	// tolerance is the part by which a metric may differ from its target.
	tolerance = 0.1
)

var errNoPods = errors.New("no pods returned by selector while calculating replica count")

// measurement works out how many replicas the metrics ask for.
type measurement struct {
	*autoscaler
	selector         labels.Selector
	current, running int32
}

// measure returns how many replicas a metric asks for, and its name in events and conditions.
func (m *measurement) measure(
	ctx context.Context, spec *autoscalingv2.MetricSpec,
) (replicas int32, name string, status autoscalingv2.MetricStatus, err error) {
	status = autoscalingv2.MetricStatus{Type: spec.Type}
	var value *autoscalingv2.MetricValueStatus
	switch {
	case spec.Resource != nil:
		s := spec.Resource
		replicas, name, value, err = m.resource(ctx, s.Name, "", &s.Target)
		if err == nil {
			status.Resource = &autoscalingv2.ResourceMetricStatus{Name: s.Name, Current: *value}
		}
	case spec.ContainerResource != nil:
		s := spec.ContainerResource
		replicas, name, value, err = m.resource(ctx, s.Name, s.Container, &s.Target)
		if err == nil {
			status.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{
				Name: s.Name, Container: s.Container, Current: *value,
			}
		}
	case spec.Pods != nil:
		s := spec.Pods
		name = "pods metric " + s.Metric.Name
		var samples map[string]sample
		samples, err = m.metrics.pods(ctx, m.Namespace, m.selector, &s.Metric)
		if err == nil {
			replicas, value, err = m.byPods(samples, "", nil, &s.Target)
		}
		if err != nil {
			return 0, "", status, fmt.Errorf("unable to get metric %s: %w", s.Metric.Name, err)
		}
		status.Pods = &autoscalingv2.PodsMetricStatus{Metric: s.Metric, Current: *value}
	case spec.Object != nil:
		s := spec.Object
		name = s.DescribedObject.Kind + " metric " + s.Metric.Name
		if s.Target.AverageValue != nil {
			name = externalName(&s.Metric) // as in kube-controller-manager
		}
		var total int64
		var of string
		if of, err = m.resourceOf(&s.DescribedObject); err == nil {
			total, err = m.metrics.object(ctx, m.Namespace, &s.DescribedObject, of, &s.Metric)
		}
		if err == nil {
			replicas, value, err = m.byTotal(total, &s.Target)
		}
		if err != nil {
			return 0, "", status, fmt.Errorf("unable to get metric %s: %w", s.Metric.Name, err)
		}
		status.Object = &autoscalingv2.ObjectMetricStatus{
			Metric: s.Metric, DescribedObject: s.DescribedObject, Current: *value,
		}
	case spec.External != nil:
		s := spec.External
		name = externalName(&s.Metric)
		var total int64
		total, err = m.metrics.external(ctx, m.Namespace, &s.Metric)
		if err == nil {
			replicas, value, err = m.byTotal(total, &s.Target)
		}
		if err != nil {
			return 0, "", status, fmt.Errorf("unable to get external metric %s/%s: %w", m.Namespace,
				s.Metric.Name, err)
		}
		status.External = &autoscalingv2.ExternalMetricStatus{Metric: s.Metric, Current: *value}
	default:
		err = fmt.Errorf("unknown metric source type %q", spec.Type)
	}
	return replicas, name, status, err
}

// externalName returns the name of an external metric in events and conditions.
func externalName(m *autoscalingv2.MetricIdentifier) string {
	return fmt.Sprintf("external metric %s(%v)", m.Name, m.Selector)
}

// resource returns how many replicas the use of a resource asks for.
func (m *measurement) resource(
	ctx context.Context, name corev1.ResourceName, container string,
	target *autoscalingv2.MetricTarget,
) (int32, string, *autoscalingv2.MetricValueStatus, error) {
	what, verb := string(name)+" resource", "usage"
	if target.AverageUtilization != nil {
		if container != "" {
			what = string(name) + " container resource"
		}
		what, verb = what+" utilization (percentage of request)", "utilization"
	}
	fail := func(err error) error { return fmt.Errorf("failed to get %s %s: %w", name, verb, err) }
	samples, err := m.metrics.resource(ctx, m.Namespace, m.selector, name, container)
	if err != nil {
		return 0, "", nil, fail(fmt.Errorf("unable to get metrics for resource %s: %w", name, err))
	}
	var requests map[string]int64
	if target.AverageUtilization != nil {
		if requests, err = m.requests(name, container); err != nil {
			return 0, "", nil, fail(err)
		}
	}
	replicas, value, err := m.byPods(samples, name, requests, target)
	if err != nil {
		return 0, "", nil, fail(err)
	}
	return replicas, what, value, nil
}

// podList returns the pods of the target.
func (m *measurement) podList() []*corev1.Pod {
	return slices.DeleteFunc(loop.InNamespace[corev1.Pod](m.pods, m.Namespace),
		func(p *corev1.Pod) bool { return !m.selector.Matches(labels.Set(p.Labels)) })
}

// requests returns how much of a resource each pod requests, in thousandths.
func (m *measurement) requests(
	name corev1.ResourceName, container string,
) (map[string]int64, error) {
	requests := map[string]int64{}
	for _, p := range m.podList() {
		if p.Spec.Resources != nil && container == "" {
			if amount, ok := p.Spec.Resources.Requests[name]; ok {
				requests[p.Name] = amount.MilliValue()
				continue
			}
		}
		sum := int64(0)
		for i := range p.Spec.Containers {
			c := &p.Spec.Containers[i]
			if container != "" && c.Name != container {
				continue
			}
			amount, ok := c.Resources.Requests[name]
			if !ok {
				return nil, fmt.Errorf("missing request for %s in container %s of Pod %s", name, c.Name,
					p.Name)
			}
			sum += amount.MilliValue()
		}
		requests[p.Name] = sum
	}
	return requests, nil
}

// unready reports whether a sample of a pod says nothing about the load of the pod, because the pod
// has just started.
func (m *measurement) unready(p *corev1.Pod, s sample, name corev1.ResourceName) bool {
	if name != corev1.ResourceCPU {
		return false
	}
	ready := pods.Condition(&p.Status, corev1.PodReady)
	if ready == nil || p.Status.StartTime == nil {
		return true
	}
	started, changed := p.Status.StartTime.Time, ready.LastTransitionTime.Time
	if m.now.Before(started.Add(cpuInitialization)) {
		return ready.Status == corev1.ConditionFalse || s.at.Before(changed.Add(s.window))
	}
	return ready.Status == corev1.ConditionFalse && started.Add(initialReadiness).After(changed)
}

// byPods returns how many replicas a metric of pods asks for. Requests are nil if the target is an
// average value.
func (m *measurement) byPods(
	samples map[string]sample, name corev1.ResourceName, requests map[string]int64,
	target *autoscalingv2.MetricTarget,
) (int32, *autoscalingv2.MetricValueStatus, error) {
	pods := m.podList()
	if len(pods) == 0 {
		return 0, nil, errNoPods
	}
	values := map[string]int64{}
	var missing, unready []string
	for _, p := range pods {
		if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed {
			continue
		}
		s, ok := samples[p.Name]
		switch {
		case p.Status.Phase == corev1.PodPending:
			unready = append(unready, p.Name)
		case !ok:
			missing = append(missing, p.Name)
		case m.unready(p, s, name):
			unready = append(unready, p.Name)
		default:
			values[p.Name] = s.value
		}
	}
	if len(values) == 0 {
		return 0, nil, errors.New(
			"did not receive metrics for targeted pods (pods might be unready)")
	}
	ratio, value, err := ratioOf(values, requests, target)
	if err != nil {
		return 0, nil, err
	}
	if name == corev1.ResourceMemory {
		value.AverageValue.Format = resource.BinarySI
	}
	pending := len(unready) > 0 && ratio > 1
	if !pending && len(missing) == 0 {
		if m.tolerable(ratio) {
			return m.current, value, nil
		}
		return ceil(ratio * float64(len(values))), value, nil
	}
	// Assume what makes the change smaller.
	for _, pod := range missing {
		switch {
		case ratio > 1:
			values[pod] = 0
		case ratio < 1 && requests != nil:
			values[pod] = requests[pod] * int64(max(100, *target.AverageUtilization)) / 100
		case ratio < 1:
			values[pod] = target.AverageValue.MilliValue()
		}
	}
	if pending {
		for _, pod := range unready {
			values[pod] = 0
		}
	}
	assumed, _, err := ratioOf(values, requests, target)
	if err != nil {
		return 0, nil, err
	}
	replicas := ceil(assumed * float64(len(values)))
	if m.tolerable(assumed) || ratio < 1 && (assumed > 1 || replicas > m.current) ||
		ratio > 1 && (assumed < 1 || replicas < m.current) {
		return m.current, value, nil
	}
	return replicas, value, nil
}

// ratioOf returns how many times its target a metric is.
func ratioOf(
	values, requests map[string]int64, target *autoscalingv2.MetricTarget,
) (float64, *autoscalingv2.MetricValueStatus, error) {
	total, requested := int64(0), int64(0)
	for pod, value := range values {
		if requests != nil {
			request, ok := requests[pod]
			if !ok {
				continue
			}
			requested += request
		}
		total += value
	}
	average := resource.NewMilliQuantity(total/int64(len(values)), resource.DecimalSI)
	status := &autoscalingv2.MetricValueStatus{AverageValue: average}
	if requests == nil {
		if target.AverageValue == nil {
			return 0, nil, errors.New("the target has no average value")
		}
		return float64(average.MilliValue()) / float64(target.AverageValue.MilliValue()), status, nil
	}
	if requested == 0 {
		return 0, nil, errors.New("no metrics returned matched known pods")
	}
	// The product would not fit into an integer if pods used petabytes.
	percent := int32(min(float64(total)*100/float64(requested), math.MaxInt32))
	status.AverageUtilization = &percent
	return float64(percent) / float64(*target.AverageUtilization), status, nil
}

// byTotal returns how many replicas a metric asks for that is not of pods.
func (m *measurement) byTotal(
	total int64, target *autoscalingv2.MetricTarget,
) (int32, *autoscalingv2.MetricValueStatus, error) {
	if target.AverageValue != nil {
		each := target.AverageValue.MilliValue()
		running := max(m.running, 1)
		status := &autoscalingv2.MetricValueStatus{AverageValue: resource.NewMilliQuantity(
			int64(math.Ceil(float64(total)/float64(running))), resource.DecimalSI)}
		if m.running > 0 && m.tolerable(float64(total)/(float64(each)*float64(m.running))) {
			return m.running, status, nil
		}
		return ceil(float64(total) / float64(each)), status, nil
	}
	status := &autoscalingv2.MetricValueStatus{
		Value: resource.NewMilliQuantity(total, resource.DecimalSI),
	}
	ratio := float64(total) / float64(target.Value.MilliValue())
	if m.current == 0 {
		return ceil(ratio), status, nil
	}
	if m.tolerable(ratio) {
		return m.current, status, nil
	}
	all := m.podList()
	if len(all) == 0 {
		return 0, nil, errNoPods // the controller of the target has not created them yet
	}
	ready := 0
	for _, p := range all {
		if p.Status.Phase == corev1.PodRunning && pods.Ready(p) {
			ready++
		}
	}
	return ceil(ratio * float64(ready)), status, nil
}

// tolerable reports whether a metric is near enough to its target.
func (m *measurement) tolerable(ratio float64) bool {
	allowed := func(up bool) float64 {
		t := m.rules(up).Tolerance
		if t != nil && features.Enabled(features.HPAConfigurableTolerance) {
			return t.AsApproximateFloat64()
		}
		return tolerance
	}
	return ratio >= 1-allowed(false) && ratio <= 1+allowed(true)
}

// ceil returns the number of replicas that is at least x, or the one that is next to it.
func ceil(x float64) int32 {
	return int32(max(math.MinInt32, min(math.Ceil(x), math.MaxInt32)))
}
