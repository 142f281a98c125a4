package disruption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-helpers/apps/poddisruptionbudget"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// syncBudget sets the status of a budget. Recheck is the time after which a pod that is to be
// disrupted counts as available again, if there is one.
func (c *controller) syncBudget(
	ctx context.Context, b *policyv1.PodDisruptionBudget,
) (recheck time.Duration, err error) {
	selected := c.podsOf(b)
	if len(selected) == 0 {
		c.Recorder.Event(b, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	expected, desired, unmanaged, err := c.expected(ctx, b, selected)
	if err != nil {
		c.Recorder.Eventf(b, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed",
			"Failed to calculate the number of expected pods: %v", err)
		return 0, err
	}
	if unmanaged > 0 {
		c.Recorder.Eventf(b, corev1.EventTypeWarning, "UnmanagedPods",
			"Pods selected by this PodDisruptionBudget (selector: %v) were found to be unmanaged. As a "+
				"result, the status of the PDB cannot be calculated correctly, which may result in "+
				"undefined behavior. To account for these pods please set \".spec.minAvailable\" field of "+
				"the PDB to an integer value.", selector(b))
	}
	now := time.Now()
	disrupted, recheck := c.disrupted(b, selected, now)
	healthy := int32(0)
	for _, p := range selected {
		if _, leaves := disrupted[p.Name]; !leaves && p.DeletionTimestamp == nil && pods.Ready(p) {
			healthy++
		}
	}
	return recheck, c.update(ctx, b, policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation,
		DisruptedPods:      disrupted,
		DisruptionsAllowed: allowed(expected, desired, healthy),
		CurrentHealthy:     healthy,
		DesiredHealthy:     desired,
		ExpectedPods:       expected,
	})
}

func allowed(expected, desired, healthy int32) int32 {
	if expected <= 0 {
		return 0
	}
	return max(healthy-desired, 0)
}

func (c *controller) podsOf(b *policyv1.PodDisruptionBudget) []*corev1.Pod {
	s := selector(b)
	return slices.DeleteFunc(loop.InNamespace[corev1.Pod](c.pods, b.Namespace),
		func(p *corev1.Pod) bool { return !s.Matches(labels.Set(p.Labels)) })
}

// expected returns how many pods there should be, how many of them should be healthy, and how many
// pods have no controller that could tell.
func (c *controller) expected(
	ctx context.Context, b *policyv1.PodDisruptionBudget, pods []*corev1.Pod,
) (expected, desired int32, unmanaged int, err error) {
	if least := b.Spec.MinAvailable; least != nil && least.Type == intstr.Int {
		return int32(len(pods)), least.IntVal, 0, nil
	}
	if b.Spec.MaxUnavailable == nil && b.Spec.MinAvailable == nil {
		return 0, 0, 0, nil
	}
	expected, unmanaged, err = c.scale(ctx, pods)
	if err != nil {
		return 0, 0, 0, err
	}
	amount := b.Spec.MaxUnavailable
	if amount == nil {
		amount = b.Spec.MinAvailable
	}
	scaled, err := intstr.GetScaledValueFromIntOrPercent(amount, int(expected), true)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("scale %s: %w", amount, err)
	}
	if b.Spec.MaxUnavailable != nil {
		return expected, max(expected-int32(scaled), 0), unmanaged, nil
	}
	return expected, int32(scaled), unmanaged, nil
}

// disrupted returns the pods that the API server has begun to evict and that are not being deleted
// yet.
func (c *controller) disrupted(
	b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, now time.Time,
) (disrupted map[string]metav1.Time, recheck time.Duration) {
	for _, p := range pods {
		begun, ok := b.Status.DisruptedPods[p.Name]
		// A pod that is younger than the eviction has taken the place and the name of the evicted
		// one. kube-controller-manager waits until patience is over.
		if !ok || p.DeletionTimestamp != nil || p.CreationTimestamp.After(begun.Time) {
			continue
		}
		left := loop.Left(begun.Time, patience, now)
		if left <= 0 {
			c.Recorder.Eventf(p, corev1.EventTypeWarning, "NotDeleted",
				"Pod was expected by PDB %s/%s to be deleted but it wasn't", b.Namespace, b.Name)
			continue
		}
		if disrupted == nil {
			disrupted = map[string]metav1.Time{}
		}
		disrupted[p.Name] = begun
		if recheck == 0 || left < recheck {
			recheck = left
		}
	}
	return disrupted, recheck
}

// update writes a status, unless the budget has it already.
func (c *controller) update(
	ctx context.Context, b *policyv1.PodDisruptionBudget, status policyv1.PodDisruptionBudgetStatus,
) error {
	status.Conditions = b.Status.Conditions
	if equality.Semantic.DeepEqual(b.Status, status) && poddisruptionbudget.ConditionsAreUpToDate(b) {
		return nil
	}
	changed := b.DeepCopy()
	changed.Status = *status.DeepCopy()
	poddisruptionbudget.UpdateDisruptionAllowedCondition(changed)
	_, err := c.Client.PolicyV1().PodDisruptionBudgets(b.Namespace).UpdateStatus(ctx, changed,
		metav1.UpdateOptions{})
	return err
}

// failed allows no disruptions, because it is unknown how many would be all right. It returns
// cause.
func (c *controller) failed(
	ctx context.Context, b *policyv1.PodDisruptionBudget, cause error,
) error {
	changed := b.DeepCopy()
	changed.Status.DisruptionsAllowed = 0
	meta.SetStatusCondition(&changed.Status.Conditions, metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
		Reason: policyv1.SyncFailedReason, Message: cause.Error(),
		ObservedGeneration: b.Status.ObservedGeneration,
	})
	if equality.Semantic.DeepEqual(b.Status, changed.Status) {
		return cause
	}
	_, err := c.Client.PolicyV1().PodDisruptionBudgets(b.Namespace).UpdateStatus(ctx, changed,
		metav1.UpdateOptions{})
	return errors.Join(cause, err)
}
