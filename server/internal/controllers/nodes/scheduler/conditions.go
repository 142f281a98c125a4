package scheduler

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// bindingLimit is how long a pod waits for the conditions of the devices that it has got.
const bindingLimit = 10 * time.Minute

// readiness says whether a pod that has devices can be bound.
type readiness int

const (
	devicesReady readiness = iota
	devicesPending
	devicesFailed
)

// conditionsOf returns whether the devices of an allocated claim have the conditions without which
// no pod may be bound to the node (KEP-5007).
func conditionsOf(c *resourcev1.ResourceClaim) readiness {
	state := devicesReady
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
		isTrue := func(kind string) bool { return meta.IsStatusConditionTrue(conditions, kind) }
		if slices.ContainsFunc(result.BindingFailureConditions, isTrue) {
			return devicesFailed
		}
		for _, kind := range result.BindingConditions {
			if !isTrue(kind) {
				state = devicesPending
			}
		}
	}
	if at := c.Status.Allocation.AllocationTimestamp; state == devicesPending && at != nil &&
		time.Since(at.Time) > bindingLimit {
		return devicesFailed
	}
	return state
}

func hasConditions(allocation *resourcev1.AllocationResult) bool {
	return slices.ContainsFunc(allocation.Devices.Results,
		func(r resourcev1.DeviceRequestAllocationResult) bool { return len(r.BindingConditions) > 0 })
}

// awaitsConditions reports whether the pod cannot be bound before devices of its claims have some
// conditions.
func (a *attempt) awaitsConditions(reserved []reservation) bool {
	return slices.ContainsFunc(a.prepared.devices.allocated, func(c *resourcev1.ResourceClaim) bool {
		return conditionsOf(c) == devicesPending
	}) || slices.ContainsFunc(reserved, func(one reservation) bool {
		return one.allocation != nil && hasConditions(one.allocation)
	})
}

// awaitConditions reserves claims for a pod and lets the pod wait for the conditions of the devices.
func (r *run) awaitConditions(
	ctx context.Context, p *queued, info *pod, node string, reserved []reservation,
) {
	if len(reserved) > 0 {
		r.tellNode(ctx, info, node)
		if err := r.reserve(ctx, info, reserved); err != nil {
			r.failed(ctx, p, info, errors.Join(err, r.unreserve(ctx, reserved)))
			return
		}
		r.events.send(ctx, info.Pod, corev1.EventTypeNormal, "BindingConditionsPending",
			"Scheduling", "waiting for binding conditions for device on node "+node)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue.failed(p, devicesChanged|nodeChanged)
}
