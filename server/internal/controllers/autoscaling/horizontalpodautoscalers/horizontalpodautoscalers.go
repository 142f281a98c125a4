package horizontalpodautoscalers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/controllers/autoscaling/scale"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "horizontal-pod-autoscaler-controller"

// Component is the source of the events.
const Component = "horizontal-pod-autoscaler"

// period is the time between two looks at the metrics.
const period = 15 * time.Second

// Loop is the loop of HorizontalPodAutoscalers.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "horizontalpodautoscaling", Component: Component,
		Purpose:  "scales workloads according to metrics",
		Workload: true, Begin: begin,
		Workers: 5, // as in kube-controller-manager
		After:   []schema.GroupResource{autoscalingv2.Resource("horizontalpodautoscalers")},
	}
}

type controller struct {
	*loop.Controller
	autoscalers, pods cache.SharedIndexInformer
	scales            scale.Client
	metrics           metricsClient

	mu      sync.Mutex
	history map[string]*history // by key; guarded by mu; each is used by one worker at a time
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{
		Controller:  l,
		autoscalers: l.Informer(&autoscalingv2.HorizontalPodAutoscaler{}),
		pods:        l.Informer(&corev1.Pod{}),
		scales:      scale.Client{Discovery: l.Client.Discovery()},
		metrics:     metricsClient{l.Client.Discovery().RESTClient()},
		history:     map[string]*history{},
	}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.On(c.autoscalers, c.changed), {Informer: c.pods},
	}}
}

func (c *controller) changed(old, a *autoscalingv2.HorizontalPodAutoscaler) {
	// Not all API servers count the generations of autoscalers.
	if old != nil && a != nil && old.UID == a.UID &&
		equality.Semantic.DeepEqual(old.Spec, a.Spec) {
		return
	}
	if a == nil {
		a = old // sync forgets its history
	}
	c.Enqueue(loop.Key(a))
}

// historyOf returns the history of an autoscaler. One with another UID has no part in it.
func (c *controller) historyOf(key string, uid types.UID) *history {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.history[key]; h == nil || h.uid != uid {
		c.history[key] = &history{uid: uid}
	}
	return c.history[key]
}

func (c *controller) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.history, key)
}

// rivals returns the autoscalers whose targets have some of the pods that a selector matches, in
// order. The selector is that of the target of a.
func (a *autoscaler) rivals(selector labels.Selector) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.history.selector = selector
	var keys []string
	pods := loop.InNamespace[corev1.Pod](a.pods, a.Namespace)
	for key, h := range a.controller.history {
		if namespace, _, _ := strings.Cut(key, "/"); namespace != a.Namespace || h.selector == nil {
			continue
		}
		if slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
			set := labels.Set(p.Labels)
			return selector.Matches(set) && h.selector.Matches(set)
		}) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	old := loop.Get[autoscalingv2.HorizontalPodAutoscaler](c.autoscalers, key)
	if old == nil {
		c.forget(key)
		return 0, nil
	}
	a := &autoscaler{
		controller: c, HorizontalPodAutoscaler: old.DeepCopy(), history: c.historyOf(key, old.UID),
		now: time.Now(),
	}
	a.reconcile(ctx) // errors are in the conditions
	if !equality.Semantic.DeepEqual(old.Status, a.Status) {
		_, err := c.Client.AutoscalingV2().HorizontalPodAutoscalers(a.Namespace).UpdateStatus(ctx,
			a.HorizontalPodAutoscaler, metav1.UpdateOptions{})
		if err = loop.IgnoreChanged(err); err != nil {
			return 0, err
		}
	}
	return period, nil
}

// autoscaler is one look at an autoscaler, whose status it changes.
type autoscaler struct {
	*controller
	*autoscalingv2.HorizontalPodAutoscaler
	history *history
	now     time.Time
}

// condition sets a condition of the autoscaler.
func (a *autoscaler) condition(
	conditionType autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus,
	reason, format string, args ...any,
) {
	type condition = autoscalingv2.HorizontalPodAutoscalerCondition
	c := condition{
		Type: conditionType, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...),
		LastTransitionTime: metav1.NewTime(a.now),
	}
	loop.SetCondition(&a.Status.Conditions, c, func(c *condition) (
		autoscalingv2.HorizontalPodAutoscalerConditionType, corev1.ConditionStatus, *metav1.Time,
	) {
		return c.Type, c.Status, &c.LastTransitionTime
	})
}

func (a *autoscaler) warn(reason string, err error) {
	a.Recorder.Event(a.HorizontalPodAutoscaler, corev1.EventTypeWarning, reason, err.Error())
}

func (a *autoscaler) reconcile(ctx context.Context) {
	target := &a.Spec.ScaleTargetRef
	s, err := a.scales.Get(ctx, a.Namespace, target.APIVersion, target.Kind, target.Name)
	if err != nil {
		a.warn("FailedGetScale", err)
		a.condition(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedGetScale",
			"the HPA controller was unable to get the target's current scale: %v", err)
		return
	}
	a.condition(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededGetScale",
		"the HPA controller was able to get the target's current scale")
	current, least := s.Spec.Replicas, ptr.Deref(a.Spec.MinReplicas, 1)
	a.Status.CurrentReplicas, a.Status.CurrentMetrics = current, nil
	a.Status.ObservedGeneration = nil
	if features.Enabled(features.HPAGeneration) {
		a.Status.ObservedGeneration = &a.Generation
	}
	a.history.begin(current, a.now)
	desired, reason := current, ""
	switch {
	case current == 0 && !a.leavesZero(least):
		a.condition(autoscalingv2.ScalingActive, corev1.ConditionFalse, "ScalingDisabled",
			"scaling is disabled since the replica count of the target is zero")
		a.forgetZero()
		desired = 0
	case current > a.Spec.MaxReplicas:
		desired, reason = a.Spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas"
	case current != 0 && current < least:
		desired, reason = least, belowLeast
	default:
		measured, metric, err := a.measure(ctx, s)
		if err != nil {
			a.warn("FailedComputeMetricsReplicas", err)
			return
		}
		switch {
		case measured > current:
			reason = metric + " above target"
		case measured < current:
			reason = "All metrics below target"
		}
		desired = a.normalize(current, measured, least)
		if current == 0 && desired < least {
			// least has been raised since the loop has scaled to zero.
			desired, reason = least, cmp.Or(reason, belowLeast)
		}
	}
	if desired == current || a.rescale(ctx, s, desired, reason) {
		a.Status.DesiredReplicas = desired
	}
}

// belowLeast is why a target is scaled although no metric asks for it.
const belowLeast = "Current number of replicas below Spec.MinReplicas"

// leavesZero reports whether the target, which has no replicas, may get some. It may if the loop
// has scaled it to zero, but not if a user has, who does not want any. Without replicas, only
// metrics that are not of pods say something.
func (a *autoscaler) leavesZero(least int32) bool {
	return features.Enabled(features.HPAScaleToZero) && slices.ContainsFunc(a.Status.Conditions,
		func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
			return c.Type == autoscalingv2.ScaledToZero && c.Status == corev1.ConditionTrue
		}) && (least != 0 || a.countsMore())
}

// forgetZero removes what an autoscaler says about scaling to zero, unless it may do that.
func (a *autoscaler) forgetZero() {
	if features.Enabled(features.HPAScaleToZero) {
		return
	}
	a.Status.Conditions = slices.DeleteFunc(a.Status.Conditions,
		func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
			return c.Type == autoscalingv2.ScaledToZero
		})
}

// countsMore reports whether the autoscaler has a metric that is not of pods.
func (a *autoscaler) countsMore() bool {
	return slices.ContainsFunc(a.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType ||
			m.Type == autoscalingv2.ExternalMetricSourceType
	})
}

// rescale writes the scale of the target. It reports whether that has succeeded.
func (a *autoscaler) rescale(
	ctx context.Context, s *autoscalingv1.Scale, desired int32, reason string,
) bool {
	current := s.Spec.Replicas
	target := &a.Spec.ScaleTargetRef
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		s.Spec.Replicas = desired
		_, err := a.scales.Update(ctx, s, target.APIVersion, target.Kind)
		if apierrors.IsConflict(err) {
			newer, failed := a.scales.Get(ctx, a.Namespace, target.APIVersion, target.Kind, target.Name)
			if failed == nil {
				s = newer
			}
		}
		return err
	})
	if err != nil {
		a.Recorder.Eventf(a.HorizontalPodAutoscaler, corev1.EventTypeWarning, "FailedRescale",
			"New size: %d; reason: %s; error: %v", desired, reason, err)
		a.condition(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedUpdateScale",
			"the HPA controller was unable to update the target scale: %v", err)
		return false
	}
	a.condition(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededRescale",
		"the HPA controller was able to update the target scale to %d", desired)
	a.Recorder.Eventf(a.HorizontalPodAutoscaler, corev1.EventTypeNormal, "SuccessfulRescale",
		"New size: %d; reason: %s", desired, reason)
	if !features.Enabled(features.HPAScaleToZero) {
		a.forgetZero()
	} else if desired == 0 && ptr.Deref(a.Spec.MinReplicas, 1) == 0 && a.countsMore() {
		a.condition(autoscalingv2.ScaledToZero, corev1.ConditionTrue, "ScaledToZero",
			"the HPA controller scaled the workload to zero")
	} else {
		a.condition(autoscalingv2.ScaledToZero, corev1.ConditionFalse, "NotScaledToZero",
			"the HPA controller did not scale the workload to zero")
	}
	a.history.scaled(desired-current, a.now)
	a.Status.LastScaleTime = new(metav1.NewTime(a.now))
	return true
}

// measure returns the highest number of replicas that a metric asks for, and the name of the
// metric.
func (a *autoscaler) measure(
	ctx context.Context, s *autoscalingv1.Scale,
) (replicas int32, name string, err error) {
	if s.Status.Selector == "" {
		err := errors.New("selector is required")
		a.warn("SelectorRequired", err)
		a.condition(autoscalingv2.ScalingActive, corev1.ConditionFalse, "InvalidSelector",
			"the HPA target's scale is missing a selector")
		return 0, "", err
	}
	selector, err := labels.Parse(s.Status.Selector)
	if err != nil {
		err = fmt.Errorf("couldn't convert selector into a corresponding internal selector object: %w",
			err)
		a.warn("InvalidSelector", err)
		a.condition(autoscalingv2.ScalingActive, corev1.ConditionFalse, "InvalidSelector", "%v", err)
		return 0, "", err
	}
	if keys := a.rivals(selector); len(keys) > 1 {
		err := fmt.Errorf("pods by selector %s are controlled by multiple HPAs: %v", s.Status.Selector,
			keys)
		a.warn("AmbiguousSelector", err)
		a.condition(autoscalingv2.ScalingActive, corev1.ConditionFalse, "AmbiguousSelector", "%v", err)
		return 0, "", err
	}
	m := &measurement{
		autoscaler: a, selector: selector, current: s.Spec.Replicas, running: s.Status.Replicas,
	}
	// The status of a metric that cannot be read is empty, as in kube-controller-manager.
	a.Status.CurrentMetrics = make([]autoscalingv2.MetricStatus, len(a.Spec.Metrics))
	invalid := 0
	var first error
	var firstSpec *autoscalingv2.MetricSpec
	for i := range a.Spec.Metrics {
		spec := &a.Spec.Metrics[i]
		proposed, metric, status, err := m.measure(ctx, spec)
		if err != nil {
			if invalid++; first == nil {
				first, firstSpec = err, spec
			}
			a.warn(failedReason(spec.Type), err)
			continue
		}
		a.Status.CurrentMetrics[i] = status
		if name == "" || proposed > replicas {
			replicas, name = proposed, metric
		}
	}
	// Without some of the metrics, it is unknown whether fewer replicas are enough.
	if invalid > 0 && (invalid == len(a.Spec.Metrics) || replicas < m.current) {
		a.condition(autoscalingv2.ScalingActive, corev1.ConditionFalse, failedReason(firstSpec.Type),
			"the HPA was unable to compute the replica count: %v", first)
		return 0, "", fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: "+
			"failed to get %s metric value: %w", invalid, len(a.Spec.Metrics), nameOf(firstSpec), first)
	}
	a.condition(autoscalingv2.ScalingActive, corev1.ConditionTrue, "ValidMetricFound",
		"the HPA was able to successfully calculate a replica count from %s", name)
	return replicas, name, nil
}

// nameOf returns what errors call a metric.
func nameOf(spec *autoscalingv2.MetricSpec) string {
	switch {
	case spec.Resource != nil:
		return string(spec.Resource.Name) + " resource"
	case spec.ContainerResource != nil:
		return string(spec.ContainerResource.Name) + " container"
	case spec.External != nil:
		return spec.External.Metric.Name + " external"
	}
	return strings.ToLower(string(spec.Type))
}

func failedReason(t autoscalingv2.MetricSourceType) string {
	switch t {
	case autoscalingv2.ObjectMetricSourceType:
		return "FailedGetObjectMetric"
	case autoscalingv2.PodsMetricSourceType:
		return "FailedGetPodsMetric"
	case autoscalingv2.ResourceMetricSourceType:
		return "FailedGetResourceMetric"
	case autoscalingv2.ContainerResourceMetricSourceType:
		return "FailedGetContainerResourceMetric"
	case autoscalingv2.ExternalMetricSourceType:
		return "FailedGetExternalMetric"
	}
	return "InvalidMetricSourceType"
}
