package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// deviceFeatures are the features of Kubernetes 1.37 that are on by default and that the scheduler
// supports.
var deviceFeatures = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceTaints: true, PartitionableDevices: true,
	PrioritizedList: true,
}

// maxSelectors is how many compiled selectors of devices are kept.
const maxSelectors = 100

// devices are the listers of everything about devices (KEP-4381).
type devices struct {
	claims    resourcelisters.ResourceClaimLister
	slices    resourcelisters.ResourceSliceLister
	classes   classes
	selectors *cel.Cache
	// allocated are the allocations that are being written, by the UIDs of the claims.
	allocated map[types.UID]*resourcev1.AllocationResult
}

// classes is the form in which the allocator wants the lister of device classes.
type classes struct {
	lister resourcelisters.DeviceClassLister
}

func (c classes) List() ([]*resourcev1.DeviceClass, error) {
	return c.lister.List(labels.Everything())
}

func (c classes) Get(name string) (*resourcev1.DeviceClass, error) { return c.lister.Get(name) }

func (r *run) watchDevices(ctx context.Context) error {
	if err := r.watch(ctx,
		loop.On(r.Informer(&resourcev1.ResourceClaim{}), r.deviceClaimChanged),
		r.notify(r.Informer(&resourcev1.ResourceSlice{}), devicesChanged),
		r.notify(r.Informer(&resourcev1.DeviceClass{}), devicesChanged),
	); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.devices = &devices{
		claims:    resourcelisters.NewResourceClaimLister(r.Indexer(&resourcev1.ResourceClaim{})),
		slices:    resourcelisters.NewResourceSliceLister(r.Indexer(&resourcev1.ResourceSlice{})),
		classes:   classes{resourcelisters.NewDeviceClassLister(r.Indexer(&resourcev1.DeviceClass{}))},
		selectors: cel.NewCache(maxSelectors, cel.Features{EnableConsumableCapacity: true}),
		allocated: map[types.UID]*resourcev1.AllocationResult{},
	}
	return nil
}

func (r *run) deviceClaimChanged(old, c *resourcev1.ResourceClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.devices != nil && c == nil {
		delete(r.devices.allocated, old.UID)
	} else if r.devices != nil && c.Status.Allocation != nil {
		delete(r.devices.allocated, c.UID) // it was written
	}
	if c == nil || c.DeletionTimestamp != nil {
		r.stopSearches(cmp.Or(c, old).UID)
	}
	r.queue.happenedToAll(devicesChanged, nil)
}

// stopSearches stops the searches for devices for a claim.
func (r *run) stopSearches(claim types.UID) {
	for _, l := range r.lanes {
		if l.search != nil && l.search.has(claim) {
			l.search.stop()
		}
	}
}

// allocations returns the allocations of claims, also of those that are being written.
func (d *devices) allocations() (map[types.UID]*resourcev1.AllocationResult, error) {
	claims, err := d.claims.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	allocations := map[types.UID]*resourcev1.AllocationResult{}
	for _, c := range claims {
		if allocation := cmp.Or(c.Status.Allocation, d.allocated[c.UID]); allocation != nil {
			allocations[c.UID] = allocation
		}
	}
	return allocations, nil
}

// allocator returns what allocates the devices that are not allocated yet.
func (d *devices) allocator(
	ctx context.Context, allocations map[types.UID]*resourcev1.AllocationResult,
) (structured.Allocator, error) {
	s := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, allocation := range allocations {
		for _, result := range allocation.Devices.Results {
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			switch {
			case ptr.Deref(result.AdminAccess, false): // takes nothing from others
			case result.ShareID != nil:
				s.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
				s.AggregatedCapacity.Insert(
					structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			default:
				s.AllocatedDevices.Insert(id)
			}
		}
	}
	all, err := d.slices.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	return structured.NewAllocator(ctx, deviceFeatures, s, d.classes, all, d.selectors)
}

// allocating reports whether a claim of a pod is being allocated for another pod.
func (d *devices) allocating(p *pod) bool {
	for i := range p.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(p.Pod, &p.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue
		}
		c, err := d.claims.ResourceClaims(p.Namespace).Get(*name)
		if err == nil && d.allocated[c.UID] != nil {
			return true
		}
	}
	return false
}

// podDevices are the claims of devices of a pod.
type podDevices struct {
	allocated []*resourcev1.ResourceClaim
	open      []*resourcev1.ResourceClaim // allocated once the pod has a node
	// ask are the nodes that may be fit for the pod, but about which the allocator of devices has not
	// been asked.
	ask []*corev1.Node
}

// prepareDevices looks up the claims of devices of the pod.
func (a *attempt) prepareDevices() verdict {
	whole := func(format string, args ...any) verdict {
		return verdict{reason: fmt.Sprintf(format, args...), final: true, helps: devicesChanged}
	}
	found := &a.prepared.devices
	*found = podDevices{}
	for i := range a.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(a.Pod, &a.Spec.ResourceClaims[i])
		if err != nil {
			return whole("%v", err)
		}
		if name == nil {
			continue // the pod needs no claim
		}
		c, err := a.devices.claims.ResourceClaims(a.Namespace).Get(*name)
		switch {
		case apierrors.IsNotFound(err):
			return whole("resourceclaim %q not found", *name)
		case err != nil:
			return whole("%v", err)
		case c.DeletionTimestamp != nil:
			return whole("resourceclaim %q is being deleted", c.Name)
		}
		if owned {
			if err := resourceclaim.IsForPod(a.Pod, c, false); err != nil {
				return whole("%v", err)
			}
		}
		switch {
		case slices.Contains(found.open, c) || slices.Contains(found.allocated, c):
		case c.Status.Allocation == nil:
			found.open = append(found.open, c)
		case !resourceclaim.IsReservedForPod(a.Pod, c, false) && !resourceclaim.CanBeReserved(c):
			return whole("resourceclaim in use")
		default:
			found.allocated = append(found.allocated, c)
		}
	}
	if len(found.open) == 0 {
		return verdict{}
	}
	if a.search != nil {
		a.search.about(found.open)
	}
	return a.checkClasses(found.open)
}

// checkClasses returns which request is for a class that does not exist.
func (a *attempt) checkClasses(claims []*resourcev1.ResourceClaim) verdict {
	for _, c := range claims {
		for _, request := range c.Spec.Devices.Requests {
			if request.Exactly == nil {
				continue // the allocator leaves out alternatives that it cannot satisfy
			}
			class := request.Exactly.DeviceClassName
			if _, err := a.devices.classes.Get(class); err != nil {
				return verdict{
					reason: fmt.Sprintf("request %s: device class %s does not exist", request.Name, class),
					final:  true, helps: devicesChanged,
				}
			}
		}
	}
	return verdict{}
}

func (a *attempt) filterDevices(n *node) verdict {
	final := func(reason string) verdict {
		return verdict{reason: reason, final: true, helps: nodeChanged | devicesChanged}
	}
	for _, c := range a.prepared.devices.allocated {
		if c.Status.Allocation.NodeSelector == nil {
			continue
		}
		selector, err := nodeaffinity.NewNodeSelector(c.Status.Allocation.NodeSelector)
		if err != nil || !selector.Match(n.Node) {
			return final("resourceclaim not available on the node")
		}
	}
	if len(a.prepared.devices.open) == 0 {
		return verdict{}
	}
	if a.search != nil {
		if found, known := a.search.answers[n.name]; known && found.err != nil {
			return final(found.err.Error())
		} else if known {
			return verdict{}
		}
	}
	a.prepared.devices.ask = append(a.prepared.devices.ask, n.Node)
	return verdict{reason: "node(s) whose devices are unknown", final: true}
}

// reservation is a claim that is to be reserved for a pod.
type reservation struct {
	claim      *resourcev1.ResourceClaim
	allocation *resourcev1.AllocationResult // nil if the claim is allocated
}

// reservations returns the claims to reserve for the pod, with the devices of a node that were
// found for them.
func (a *attempt) reservations(n *node) (list []reservation) {
	for _, c := range a.prepared.devices.allocated {
		if !resourceclaim.IsReservedForPod(a.Pod, c, false) {
			list = append(list, reservation{claim: c})
		}
	}
	for i, c := range a.prepared.devices.open {
		list = append(list, reservation{c, &a.search.answers[n.name].results[i]})
	}
	return list
}

// reserve writes the allocations and reserves the claims for a pod.
func (r *run) reserve(ctx context.Context, p *pod, list []reservation) error {
	for i, reserved := range list {
		if err := r.reserveOne(ctx, p, reserved); err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, other := range list[i:] {
				delete(r.devices.allocated, other.claim.UID)
			}
			r.queue.happenedToAll(devicesChanged, nil)
			return fmt.Errorf("reserve claim %s/%s: %w", p.Namespace, reserved.claim.Name, err)
		}
	}
	return nil
}

func (r *run) reserveOne(ctx context.Context, p *pod, reserved reservation) error {
	claims, c := r.Client.ResourceV1().ResourceClaims(p.Namespace), reserved.claim.DeepCopy()
	if reserved.allocation != nil {
		if !slices.Contains(c.Finalizers, resourcev1.Finalizer) {
			c.Finalizers = append(c.Finalizers, resourcev1.Finalizer)
			var err error
			if c, err = claims.Update(ctx, c, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		c.Status.Allocation = reserved.allocation
	}
	c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
		Resource: "pods", Name: p.Name, UID: p.UID,
	})
	_, err := claims.UpdateStatus(ctx, c, metav1.UpdateOptions{})
	return err
}
