package devicetainteviction

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

func (c *controller) allRules() (all []*resourcev1beta2.DeviceTaintRule) {
	if c.rules == nil {
		return nil
	}
	for _, obj := range c.rules.GetStore().List() {
		all = append(all, obj.(*resourcev1beta2.DeviceTaintRule))
	}
	return all
}

// addRules makes sure that the status of the rules that evict pods is right soon.
func (c *controller) addRules() {
	for _, rule := range c.allRules() {
		if rule.Spec.Taint.Effect == resourcev1beta2.DeviceTaintEffectNoExecute {
			c.EnqueueAfter(rulePrefix+rule.Name, rulePeriod)
		}
	}
}

// syncRule sets the condition of a rule that says how far its eviction is.
func (c *controller) syncRule(ctx context.Context, name string) (time.Duration, error) {
	rule := loop.Get[resourcev1beta2.DeviceTaintRule](c.rules, name)
	if rule == nil {
		return 0, nil
	}
	says := c.conditionOf(rule)
	is := meta.FindStatusCondition(rule.Status.Conditions, says.Type)
	if is != nil {
		says.LastTransitionTime = is.LastTransitionTime
		if *is == says {
			return 0, nil
		}
		wait := loop.Left(is.LastTransitionTime.Time, rulePeriod, time.Now())
		if is.ObservedGeneration == rule.Generation && wait > 0 {
			return wait, nil
		}
	}
	says.LastTransitionTime = metav1.Now()
	apply, err := json.Marshal(map[string]any{
		"apiVersion": resourcev1.SchemeGroupVersion.String(), "kind": "DeviceTaintRule",
		"metadata": map[string]any{"name": name, "uid": rule.UID},
		"status":   map[string]any{"conditions": []metav1.Condition{says}},
	})
	if err != nil {
		return 0, err
	}
	_, err = c.Client.ResourceV1().DeviceTaintRules().Patch(ctx, name, types.ApplyPatchType, apply,
		metav1.PatchOptions{FieldManager: Name, Force: new(true)}, "status")
	return 0, loop.IgnoreChanged(err)
}

// conditionOf returns the condition that a rule is to have.
func (c *controller) conditionOf(rule *resourcev1beta2.DeviceTaintRule) metav1.Condition {
	says := metav1.Condition{
		Type: resourcev1beta2.DeviceTaintConditionEvictionInProgress, Status: metav1.ConditionFalse,
		ObservedGeneration: rule.Generation,
	}
	c.mu.Lock()
	evicted := c.evicted[rule.UID]
	c.mu.Unlock()
	switch rule.Spec.Taint.Effect {
	case resourcev1beta2.DeviceTaintEffectNoExecute:
		switch pods, namespaces := c.evictedBy(rule); {
		case pods > 0:
			says.Status, says.Reason = metav1.ConditionTrue, "PodsPendingEviction"
			says.Message = fmt.Sprintf("%s to be evicted in %s.",
				count(pods, "pod needs", "pods need"),
				count(namespaces, "namespace", "different namespaces"))
		case evicted > 0:
			says.Reason = "Completed"
		default:
			says.Reason = "NotStarted"
		}
	case resourcev1beta2.DeviceTaintEffectNone:
		published, allocated := c.selected(rule)
		pods, namespaces := c.evictedBy(rule)
		says.Reason = "NoEffect"
		says.Message = fmt.Sprintf("%s selected. %s selected. %s would be evicted in %s if the effect "+
			"was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to "+
			"trigger an update.", count(published, "published device", "published devices"),
			count(allocated, "allocated device", "allocated devices"), count(pods, "pod", "pods"),
			count(namespaces, "namespace", "different namespaces"))
	default:
		says.Reason = "OtherEffect"
		says.Message = "Eviction only happens for the NoExecute effect."
	}
	if evicted > 0 {
		if says.Message != "" {
			says.Message += " "
		}
		says.Message += count(evicted, "pod", "pods") + " evicted since starting the controller."
	}
	return says
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// evictedBy returns how many pods have to go because of a rule, or would have to if its effect was
// NoExecute, and in how many namespaces.
func (c *controller) evictedBy(rule *resourcev1beta2.DeviceTaintRule) (pods, namespaces int) {
	in := sets.New[string]()
	for _, obj := range c.pods.GetStore().List() {
		p := obj.(*corev1.Pod)
		if p.DeletionTimestamp != nil {
			continue
		}
		if due := c.evictionOf(p, rule); due != nil && due.rules.Has(rule.UID) {
			pods++
			in.Insert(p.Namespace)
		}
	}
	return pods, in.Len()
}

// selected returns how many devices a rule is for, of those that are published and of those that
// are allocated.
func (c *controller) selected(rule *resourcev1beta2.DeviceTaintRule) (published, allocated int) {
	indexer := c.published.GetIndexer()
	for _, key := range indexer.ListIndexFuncValues(poolIndex) {
		found, _ := indexer.ByIndex(poolIndex, key) // the index exists
		if len(found) == 0 {
			continue
		}
		spec := &found[0].(*resourcev1.ResourceSlice).Spec
		for _, d := range c.devices(spec.Driver, spec.Pool.Name) {
			if selects(rule, spec.Driver, spec.Pool.Name, d.Name) {
				published++
			}
		}
	}
	for _, obj := range c.claims.GetStore().List() {
		for _, r := range results(obj.(*resourcev1.ResourceClaim)) {
			if selects(rule, r.Driver, r.Pool, r.Device) {
				allocated++
			}
		}
	}
	return published, allocated
}
