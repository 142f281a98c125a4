package devicetainteviction

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// eviction is when a pod has to go, and the rules because of which it has to.
type eviction struct {
	at    time.Time
	rules sets.Set[types.UID]
}

// taint is a NoExecute taint of a device. Rule is empty if it comes from the driver.
type taint struct {
	resourcev1.DeviceTaint
	rule types.UID
}

// evictionOf returns when a pod has to go, or nil if it may stay. If a rule is assumed, its taint
// counts whatever its effect is.
func (c *controller) evictionOf(p *corev1.Pod, assumed *resourcev1beta2.DeviceTaintRule) *eviction {
	if p.Spec.NodeName == "" {
		return nil
	}
	var due *eviction
	for name, made := range resourceclaim.PodClaims(p) {
		claim := loop.Get[resourcev1.ResourceClaim](c.claims, p.Namespace+"/"+name)
		if claim == nil || made && resourceclaim.IsForPod(p, claim, false) != nil ||
			!resourceclaim.IsReservedForPod(p, claim, false) {
			continue
		}
		for _, r := range results(claim) {
			for _, t := range c.taintsOf(&r, assumed) {
				stays, forever := tolerance(&r, &t.DeviceTaint)
				if forever {
					continue
				}
				at := time.Time{}
				if t.TimeAdded != nil {
					at = t.TimeAdded.Add(stays)
				}
				if due == nil {
					due = &eviction{at: at, rules: sets.New[types.UID]()}
				}
				if at.Before(due.at) {
					due.at = at
				}
				if t.rule != "" {
					due.rules.Insert(t.rule)
				}
			}
		}
	}
	return due
}

// tolerance returns for how long a device with a taint may be used.
func tolerance(
	r *resourcev1.DeviceRequestAllocationResult, t *resourcev1.DeviceTaint,
) (stays time.Duration, forever bool) {
	tolerated := false
	for _, toleration := range r.Tolerations {
		if toleration.Effect != resourcev1.DeviceTaintEffectNoExecute ||
			!resourceclaim.ToleratesTaint(toleration, *t) {
			continue
		}
		if toleration.TolerationSeconds == nil {
			return 0, true
		}
		limit := loop.Seconds(max(*toleration.TolerationSeconds, 0))
		if !tolerated || limit < stays {
			stays, tolerated = limit, true
		}
	}
	return stays, false
}

// taintsOf returns the NoExecute taints of a device.
func (c *controller) taintsOf(
	r *resourcev1.DeviceRequestAllocationResult, assumed *resourcev1beta2.DeviceTaintRule,
) (all []taint) {
	for _, d := range c.devices(r.Driver, r.Pool) {
		for _, t := range d.Taints {
			if d.Name == r.Device && t.Effect == resourcev1.DeviceTaintEffectNoExecute {
				all = append(all, taint{DeviceTaint: t})
			}
		}
	}
	for _, rule := range c.allRules() {
		if !selects(rule, r.Driver, r.Pool, r.Device) || assumed != rule &&
			rule.Spec.Taint.Effect != resourcev1beta2.DeviceTaintEffectNoExecute {
			continue
		}
		t := &rule.Spec.Taint
		all = append(all, taint{resourcev1.DeviceTaint{
			Key: t.Key, Value: t.Value, Effect: resourcev1.DeviceTaintEffectNoExecute,
			TimeAdded: t.TimeAdded,
		}, rule.UID})
	}
	return all
}

// devices returns the devices of a pool. Slices of former generations do not count.
func (c *controller) devices(driver, pool string) (devices []resourcev1.Device) {
	found, _ := c.published.GetIndexer().ByIndex(poolIndex, driver+"/"+pool) // the index exists
	newest := int64(-1)
	for _, obj := range found {
		newest = max(newest, obj.(*resourcev1.ResourceSlice).Spec.Pool.Generation)
	}
	for _, obj := range found {
		if s := obj.(*resourcev1.ResourceSlice); s.Spec.Pool.Generation == newest {
			devices = append(devices, s.Spec.Devices...)
		}
	}
	return devices
}

// selects reports whether a rule is for a device. Without a selector, it is for none.
func selects(rule *resourcev1beta2.DeviceTaintRule, driver, pool, device string) bool {
	s := rule.Spec.DeviceSelector
	is := func(want *string, got string) bool { return want == nil || *want == got }
	return s != nil && is(s.Driver, driver) && is(s.Pool, pool) && is(s.Device, device)
}
