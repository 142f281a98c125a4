package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/features"
)

// bindingLimit is how long a pod waits for the conditions of the devices that it has got.
const bindingLimit = 10 * time.Minute

// lacksConditions reports whether devices of an allocated claim do not have the conditions without
// which no pod may be bound to the node (KEP-5007), and if they will never have them, why.
func lacksConditions(c *resourcev1.ResourceClaim) (lacks bool, never error) {
	if !features.Enabled(features.DRADeviceBindingConditions) {
		return false, nil
	}
	for _, result := range c.Status.Allocation.Devices.Results {
		if len(result.BindingConditions) == 0 {
			continue
		}
		var conditions []metav1.Condition
		for _, d := range c.Status.Devices {
			if d.Driver == result.Driver && d.Pool == result.Pool && d.Device == result.Device &&
				ptr.Equal(d.ShareID, (*string)(result.ShareID)) {
				conditions = d.Conditions
			}
		}
		for _, kind := range result.BindingFailureConditions {
			if meta.IsStatusConditionTrue(conditions, kind) {
				why := meta.FindStatusCondition(conditions, kind)
				return true, fmt.Errorf("device binding failed: claim=%s, reason=%s, message=%q",
					c.Name, why.Reason, why.Message)
			}
		}
		for _, kind := range result.BindingConditions {
			if !meta.IsStatusConditionTrue(conditions, kind) {
				lacks = true
			}
		}
	}
	if at := c.Status.Allocation.AllocationTimestamp; lacks && at != nil &&
		time.Since(at.Time) > bindingLimit {
		return true, fmt.Errorf("device binding timeout: claim=%s", c.Name)
	}
	return lacks, nil
}

// neverReady returns why a pod that waits for conditions of devices of its claims waits in vain.
func (d *devices) neverReady(p *pod) error {
	claims, _ := d.claimsOf(p)
	for _, c := range claims {
		if c.Status.Allocation == nil {
			continue
		}
		if _, err := lacksConditions(c); err != nil {
			return fmt.Errorf("running PreBind plugin %q: %w", "DynamicResources", err)
		}
	}
	return nil
}

func hasConditions(allocation *resourcev1.AllocationResult) bool {
	if !features.Enabled(features.DRADeviceBindingConditions) {
		return false
	}
	return slices.ContainsFunc(allocation.Devices.Results,
		func(r resourcev1.DeviceRequestAllocationResult) bool { return len(r.BindingConditions) > 0 })
}

// awaitsConditions reports whether the pod cannot be bound before devices of its claims have some
// conditions.
func (a *attempt) awaitsConditions(reserved []reservation) bool {
	return slices.ContainsFunc(a.prepared.devices.allocated, func(c *resourcev1.ResourceClaim) bool {
		lacks, _ := lacksConditions(c)
		return lacks
	}) || slices.ContainsFunc(reserved, func(one reservation) bool {
		return one.allocation != nil && hasConditions(one.allocation)
	})
}

// awaitConditions reserves claims for a pod and lets it wait for the conditions of the devices.
func (r *run) awaitConditions(
	ctx context.Context, p *queued, info *pod, node string, reserved []reservation,
) {
	if len(reserved) > 0 {
		r.tellNode(ctx, info, node)
		if err := r.reserve(ctx, info, reserved); err != nil {
			r.tellNode(ctx, info, "")
			r.failed(ctx, p, info, errors.Join(err, r.unreserve(ctx, reserved)))
			return
		}
		r.events.send(ctx, info.Pod, corev1.EventTypeNormal, "BindingConditionsPending",
			"Scheduling", "waiting for binding conditions for device on node "+node)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.binding = true
	r.queue.failed(p, devicesChanged|nodeChanged)
}
