package resource

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/component-base/featuregate"

	"github.com/kinproc/kinproc/chain/features"
)

// gated has the fields of a part of an object that belong to a feature gate.
type gated[T any] struct {
	gate featuregate.Feature
	// uses reports whether the part uses the fields. If clear is true, it clears them.
	uses func(part *T, clear bool) (used bool)
}

// dropDisabled clears the fields of features that are off, unless old uses them. old is nil on
// create.
func dropDisabled[T any](all []gated[T], part, old *T) {
	for _, f := range all {
		if !features.Enabled(f.gate) && (old == nil || !f.uses(old, false)) {
			f.uses(part, true)
		}
	}
}

func classFeatures() []gated[resourcev1.DeviceClassSpec] {
	return []gated[resourcev1.DeviceClassSpec]{
		{features.DRAExtendedResource, func(s *resourcev1.DeviceClassSpec, clear bool) bool {
			return take(&s.ExtendedResourceName, clear)
		}},
	}
}

func sliceFeatures() []gated[resourcev1.ResourceSliceSpec] {
	return []gated[resourcev1.ResourceSliceSpec]{
		{features.DRADeviceTaints, anyDevice(func(d *resourcev1.Device, clear bool) bool {
			return takeList(&d.Taints, clear)
		})},
		{features.DRAPartitionableDevices, partitions},
		{features.DRADeviceBindingConditions, anyDevice(bindingConditions)},
		{features.DRAConsumableCapacity, anyDevice(sharedCapacity)},
	}
}

func claimFeatures() []gated[resourcev1.ResourceClaimSpec] {
	return []gated[resourcev1.ResourceClaimSpec]{
		{features.DRADeviceTaints, tolerations},
		{features.DRAConsumableCapacity, requestedCapacity},
	}
}

// statusFeatures has the fields of a claim's status. A claim whose spec uses a feature may use it
// in its status too.
func statusFeatures() []gated[resourcev1.ResourceClaim] {
	return []gated[resourcev1.ResourceClaim]{
		{features.DRAConsumableCapacity, shares},
		{features.DRADeviceBindingConditions, awaitedConditions},
	}
}

func partitions(s *resourcev1.ResourceSliceSpec, clear bool) bool {
	used := takeList(&s.SharedCounters, clear)
	used = take(&s.PerDeviceNodeSelection, clear) || used
	return anyDevice(func(d *resourcev1.Device, clear bool) bool {
		used := takeList(&d.ConsumesCounters, clear)
		used = take(&d.NodeName, clear) || used
		used = take(&d.NodeSelector, clear) || used
		return take(&d.AllNodes, clear) || used
	})(s, clear) || used
}

func bindingConditions(d *resourcev1.Device, clear bool) bool {
	used := takeList(&d.BindingConditions, clear)
	used = takeList(&d.BindingFailureConditions, clear) || used
	return take(&d.BindsToNode, clear) || used
}

func sharedCapacity(d *resourcev1.Device, clear bool) bool {
	used := take(&d.AllowMultipleAllocations, clear)
	for name, c := range d.Capacity {
		used = take(&c.RequestPolicy, clear) || used
		if clear {
			d.Capacity[name] = c
		}
	}
	return used
}

func tolerations(s *resourcev1.ResourceClaimSpec, clear bool) bool {
	used := false
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if r.Exactly != nil {
			used = takeList(&r.Exactly.Tolerations, clear) || used
		}
		for j := range r.FirstAvailable {
			used = takeList(&r.FirstAvailable[j].Tolerations, clear) || used
		}
	}
	return used
}

func requestedCapacity(s *resourcev1.ResourceClaimSpec, clear bool) bool {
	used := false
	for i := range s.Devices.Constraints {
		used = take(&s.Devices.Constraints[i].DistinctAttribute, clear) || used
	}
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if r.Exactly != nil {
			used = take(&r.Exactly.Capacity, clear) || used
		}
		for j := range r.FirstAvailable {
			used = take(&r.FirstAvailable[j].Capacity, clear) || used
		}
	}
	return used
}

func shares(c *resourcev1.ResourceClaim, clear bool) bool {
	used := requestedCapacity(&c.Spec, false)
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			r := &a.Devices.Results[i]
			used = take(&r.ShareID, clear) || r.ConsumedCapacity != nil || used
			if clear {
				r.ConsumedCapacity = nil
			}
		}
	}
	for i := range c.Status.Devices {
		used = take(&c.Status.Devices[i].ShareID, clear) || used
	}
	return used
}

func awaitedConditions(c *resourcev1.ResourceClaim, clear bool) bool {
	used := false
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			r := &a.Devices.Results[i]
			used = takeList(&r.BindingConditions, clear) || used
			used = takeList(&r.BindingFailureConditions, clear) || used
		}
	}
	return used
}

func anyDevice(
	uses func(d *resourcev1.Device, clear bool) bool,
) func(*resourcev1.ResourceSliceSpec, bool) bool {
	return func(s *resourcev1.ResourceSliceSpec, clear bool) bool {
		used := false
		for i := range s.Devices {
			used = uses(&s.Devices[i], clear) || used
		}
		return used
	}
}

// take reports whether *value is set. If clear is true, it clears it.
func take[V any](value **V, clear bool) bool {
	used := *value != nil
	if clear {
		*value = nil
	}
	return used
}

func takeList[V any](list *[]V, clear bool) bool {
	used := len(*list) > 0
	if clear {
		*list = nil
	}
	return used
}
