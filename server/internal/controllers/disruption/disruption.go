package disruption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
)

// Name is the name of the controller in kube-controller-manager.
const Name = "disruption-controller"

// patience is how long a pod that is to be disrupted may take to be deleted.
const patience = 2 * time.Minute

// Controller keeps the status of PodDisruptionBudgets.
type Controller struct {
	loop.Dependencies
}

// New returns a controller. It starts the informers that it needs.
func New(d loop.Dependencies) *Controller {
	return &Controller{d}
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	budgets := c.Informers.Policy().V1().PodDisruptionBudgets().Informer()
	pods := c.Informers.Core().V1().Pods().Informer()
	r := &run{
		Controller: c, queue: loop.New(Name), budgets: budgets.GetIndexer(), pods: pods.GetIndexer(),
	}
	var handlers loop.Handlers
	defer handlers.Remove()
	if err := errors.Join(
		handlers.Add(budgets, loop.OnChange(func(_, b *policyv1.PodDisruptionBudget) {
			if b != nil {
				r.budgetChanged(b)
			}
		})),
		handlers.Add(pods, loop.OnChange(r.podChanged)),
	); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	c.Informers.StartWithContext(ctx)
	return r.queue.Run(ctx, 1, r.sync, handlers.Synced()...)
}

// run is the state of one call of Run.
type run struct {
	*Controller
	queue         *loop.Queue
	budgets, pods cache.Indexer
}

// stale is the prefix of the keys of pods that may have a condition that became wrong. The other
// keys are those of budgets.
const stale = "stale:"

func (r *run) budgetChanged(b *policyv1.PodDisruptionBudget) {
	r.queue.Soon(b.Namespace + "/" + b.Name)
}

func (r *run) podChanged(old, p *corev1.Pod) {
	if p == nil {
		old, p = nil, old // a deleted pod matters to the same budgets as a new one
	}
	if _, ok := disruptionTarget(p); ok {
		r.queue.Add(stale + p.Namespace + "/" + p.Name)
	}
	if old != nil && ready(old) == ready(p) && maps.Equal(old.Labels, p.Labels) &&
		(old.DeletionTimestamp == nil) == (p.DeletionTimestamp == nil) && old.UID == p.UID {
		return
	}
	// The index exists always, so there is no error.
	budgets, _ := r.budgets.ByIndex(cache.NamespaceIndex, p.Namespace)
	for _, obj := range budgets {
		b := obj.(*policyv1.PodDisruptionBudget)
		s := b.Spec.Selector
		if ownerrefs.Selects(s, p.Labels) || old != nil && ownerrefs.Selects(s, old.Labels) {
			r.budgetChanged(b)
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

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (r *run) sync(ctx context.Context, key string) (time.Duration, error) {
	if pod, ok := strings.CutPrefix(key, stale); ok {
		return r.syncPod(ctx, pod)
	}
	obj, ok, err := r.budgets.GetByKey(key)
	if err != nil || !ok {
		return 0, err
	}
	b := obj.(*policyv1.PodDisruptionBudget)
	recheck, err := r.syncBudget(ctx, b)
	switch {
	case err == nil:
	case apierrors.IsNotFound(err):
	case apierrors.IsConflict(err):
		return time.Second, nil // the change causes an event
	default:
		return 0, r.failed(ctx, b, err)
	}
	if recheck > 0 {
		r.queue.AddAfter(key, recheck)
	}
	return 0, nil
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
func (r *run) syncPod(ctx context.Context, key string) (time.Duration, error) {
	obj, ok, err := r.pods.GetByKey(key)
	if err != nil || !ok {
		return 0, err
	}
	p := obj.(*corev1.Pod)
	condition, ok := disruptionTarget(p)
	if !ok {
		return 0, nil
	}
	if left := time.Until(condition.LastTransitionTime.Add(patience)); left > 0 {
		r.queue.AddAfter(stale+key, left)
		return 0, nil
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
	_, err = r.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType,
		patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil // the change causes an event
	}
	return 0, err
}
