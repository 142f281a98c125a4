package disruption

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "disruption-controller"

// patience is how long a pod that is to be disrupted may take to be deleted.
const patience = 2 * time.Minute

// Loop is the loop of PodDisruptionBudgets.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "disruption", Component: "controllermanager",
		Purpose:  "counts the evictions that PodDisruptionBudgets allow",
		Workload: true, Begin: begin,
		After: []schema.GroupResource{policyv1.Resource("poddisruptionbudgets")},
	}
}

type controller struct {
	*loop.Controller
	budgets, pods cache.SharedIndexInformer
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{
		l, l.Informer(&policyv1.PodDisruptionBudget{}),
		l.Informer(&corev1.Pod{}),
	}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.On(c.budgets, func(_, b *policyv1.PodDisruptionBudget) {
			if b != nil {
				c.Enqueue(loop.Key(b))
			}
		}),
		loop.On(c.pods, c.podChanged),
	}}
}

// stale is the prefix of the keys of pods that may have a condition that became wrong. The other
// keys are those of budgets.
const stale = "stale:"

func (c *controller) podChanged(old, p *corev1.Pod) {
	if p == nil {
		old, p = nil, old // a deleted pod matters to the same budgets as a new one
	}
	if _, ok := disruptionTarget(p); ok {
		c.Add(stale + p.Namespace + "/" + p.Name)
	}
	if old != nil && pods.Ready(old) == pods.Ready(p) && maps.Equal(old.Labels, p.Labels) &&
		(old.DeletionTimestamp == nil) == (p.DeletionTimestamp == nil) && old.UID == p.UID {
		return
	}
	for _, b := range loop.InNamespace[policyv1.PodDisruptionBudget](c.budgets, p.Namespace) {
		s := b.Spec.Selector
		if ownerrefs.Selects(s, p.Labels) || old != nil && ownerrefs.Selects(s, old.Labels) {
			c.Enqueue(loop.Key(b))
		}
	}
}

// selector returns the selector of a budget. Selectors of stored objects are valid.
func selector(b *policyv1.PodDisruptionBudget) labels.Selector {
	s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return labels.Nothing()
	}
	return s
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	if pod, ok := strings.CutPrefix(key, stale); ok {
		return c.syncPod(ctx, pod)
	}
	b := loop.Get[policyv1.PodDisruptionBudget](c.budgets, key)
	if b == nil {
		return 0, nil
	}
	recheck, err := c.syncBudget(ctx, b)
	if loop.IgnoreChanged(err) != nil {
		return 0, c.failed(ctx, b, err)
	}
	return recheck, loop.IgnoreNotFound(err)
}

// disruptionTarget returns the condition of a pod that says that it is to be disrupted.
func disruptionTarget(p *corev1.Pod) (corev1.PodCondition, bool) {
	if p.DeletionTimestamp != nil ||
		p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return corev1.PodCondition{}, false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			return c, c.Status == corev1.ConditionTrue &&
				c.Reason != corev1.PodReasonTerminationByKubelet
		}
	}
	return corev1.PodCondition{}, false
}

// syncPod takes back the condition of a pod that was not deleted in time.
func (c *controller) syncPod(ctx context.Context, key string) (time.Duration, error) {
	p := loop.Get[corev1.Pod](c.pods, key)
	if p == nil {
		return 0, nil
	}
	condition, ok := disruptionTarget(p)
	if !ok {
		return 0, nil
	}
	if left := loop.Left(condition.LastTransitionTime.Time, patience, time.Now()); left > 0 {
		return left, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID, "resourceVersion": p.ResourceVersion},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse,
			ObservedGeneration: p.Generation, LastTransitionTime: metav1.Now(),
		}}},
	})
	if err != nil {
		return 0, err
	}
	_, err = c.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType,
		patch, metav1.PatchOptions{}, "status")
	return 0, loop.IgnoreChanged(err) // the change causes an event
}
