package resource

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kinproc/kinproc/chain/features"
)

func sliceFeatures() []features.Fields[resourcev1.ResourceSliceSpec] {
	return []features.Fields[resourcev1.ResourceSliceSpec]{
		{Gate: features.DRADeviceTaints, Take: anyDevice(func(d *resourcev1.Device, clear bool) bool {
			return features.TakeList(&d.Taints, clear)
		})},
		{Gate: features.DRAPartitionableDevices, Take: partitions},
		{Gate: features.DRADeviceBindingConditions, Take: anyDevice(bindingConditions)},
		{Gate: features.DRAConsumableCapacity, Take: anyDevice(sharedCapacity)},
	}
}

func claimFeatures() []features.Fields[resourcev1.ResourceClaimSpec] {
	return []features.Fields[resourcev1.ResourceClaimSpec]{
		{Gate: features.DRADeviceTaints, Take: tolerations},
		{Gate: features.DRAConsumableCapacity, Take: requestedCapacity},
	}
}

// statusFeatures has the fields of a claim's status. A claim whose spec uses a feature may use it
// in its status too.
func statusFeatures() []features.Fields[resourcev1.ResourceClaim] {
	return []features.Fields[resourcev1.ResourceClaim]{
		{Gate: features.DRAConsumableCapacity, Take: shares},
		{Gate: features.DRADeviceBindingConditions, Take: awaitedConditions},
	}
}

func partitions(s *resourcev1.ResourceSliceSpec, clear bool) bool {
	used := features.TakeList(&s.SharedCounters, clear)
	used = features.Take(&s.PerDeviceNodeSelection, clear) || used
	return anyDevice(func(d *resourcev1.Device, clear bool) bool {
		used := features.TakeList(&d.ConsumesCounters, clear)
		used = features.Take(&d.NodeName, clear) || used
		used = features.Take(&d.NodeSelector, clear) || used
		return features.Take(&d.AllNodes, clear) || used
	})(s, clear) || used
}

func bindingConditions(d *resourcev1.Device, clear bool) bool {
	used := features.TakeList(&d.BindingConditions, clear)
	used = features.TakeList(&d.BindingFailureConditions, clear) || used
	return features.Take(&d.BindsToNode, clear) || used
}

func sharedCapacity(d *resourcev1.Device, clear bool) bool {
	used := features.Take(&d.AllowMultipleAllocations, clear)
	for name, c := range d.Capacity {
		used = features.Take(&c.RequestPolicy, clear) || used
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
			used = features.TakeList(&r.Exactly.Tolerations, clear) || used
		}
		for j := range r.FirstAvailable {
			used = features.TakeList(&r.FirstAvailable[j].Tolerations, clear) || used
		}
	}
	return used
}

func requestedCapacity(s *resourcev1.ResourceClaimSpec, clear bool) bool {
	used := false
	for i := range s.Devices.Constraints {
		used = features.Take(&s.Devices.Constraints[i].DistinctAttribute, clear) || used
	}
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if r.Exactly != nil {
			used = features.Take(&r.Exactly.Capacity, clear) || used
		}
		for j := range r.FirstAvailable {
			used = features.Take(&r.FirstAvailable[j].Capacity, clear) || used
		}
	}
	return used
}

func shares(c *resourcev1.ResourceClaim, clear bool) bool {
	used := requestedCapacity(&c.Spec, false)
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			r := &a.Devices.Results[i]
			used = features.Take(&r.ShareID, clear) || r.ConsumedCapacity != nil || used
			if clear {
				r.ConsumedCapacity = nil
			}
		}
	}
	for i := range c.Status.Devices {
		used = features.Take(&c.Status.Devices[i].ShareID, clear) || used
	}
	return used
}

func awaitedConditions(c *resourcev1.ResourceClaim, clear bool) bool {
	used := false
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			r := &a.Devices.Results[i]
			used = features.TakeList(&r.BindingConditions, clear) || used
			used = features.TakeList(&r.BindingFailureConditions, clear) || used
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
