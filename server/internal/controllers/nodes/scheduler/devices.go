package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// deviceFeatures returns the features that the scheduler supports, as far as their gates are on.
func deviceFeatures() structured.Features {
	return structured.Features{
		AdminAccess:            true,
		ConsumableCapacity:     features.Enabled(features.DRAConsumableCapacity),
		DeviceBindingAndStatus: features.Enabled(features.DRADeviceBindingConditions),
		DeviceTaints:           features.Enabled(features.DRADeviceTaints),
		PartitionableDevices:   features.Enabled(features.DRAPartitionableDevices),
		PrioritizedList:        true,
	}
}

// maxSelectors is how many compiled selectors of devices are kept.
const maxSelectors = 100

// devices are the listers of everything about devices (KEP-4381).
type devices struct {
	claims    resourcelisters.ResourceClaimLister
	slices    resourcelisters.ResourceSliceLister
	rules     cache.Indexer // nil if there are none
	classes   classes
	offers    *extendedresourcecache.ExtendedResourceCache // by the names of extended resources
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
	classesChanged := r.notify(r.Informer(&resourcev1.DeviceClass{}), devicesChanged)
	offers := extendedresourcecache.NewExtendedResourceCache(klog.FromContext(ctx),
		classesChanged.Handler)
	classesChanged.Handler = offers
	watches := []loop.Watch{
		loop.On(r.Informer(&resourcev1.ResourceClaim{}), r.deviceClaimChanged),
		r.notify(r.Informer(&resourcev1.ResourceSlice{}), devicesChanged),
		classesChanged,
	}
	var rules cache.Indexer
	if features.Enabled(features.DRADeviceTaintRules) {
		informer := r.Informer(&resourcev1beta2.DeviceTaintRule{})
		watches, rules = append(watches, r.notify(informer, devicesChanged)), informer.GetIndexer()
	}
	if err := r.watch(ctx, watches...); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.devices = &devices{
		claims:  resourcelisters.NewResourceClaimLister(r.Indexer(&resourcev1.ResourceClaim{})),
		slices:  resourcelisters.NewResourceSliceLister(r.Indexer(&resourcev1.ResourceSlice{})),
		rules:   rules,
		classes: classes{resourcelisters.NewDeviceClassLister(r.Indexer(&resourcev1.DeviceClass{}))},
		offers:  offers,
		selectors: cel.NewCache(maxSelectors, cel.Features{
			EnableConsumableCapacity: features.Enabled(features.DRAConsumableCapacity),
		}),
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
		if c.Status.Allocation != nil {
			allocations[c.UID] = c.Status.Allocation
		}
	}
	// Claims for extended resources are allocated before they exist.
	for uid, allocation := range d.allocated {
		allocations[uid] = allocation
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
	shares := features.Enabled(features.DRAConsumableCapacity)
	for _, allocation := range allocations {
		for _, result := range allocation.Devices.Results {
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			switch {
			case ptr.Deref(result.AdminAccess, false): // takes nothing from others
			case shares && result.ShareID != nil:
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
	if d.rules != nil {
		rules := d.rules.List()
		for i := range all {
			all[i] = tainted(all[i], rules)
		}
	}
	return structured.NewAllocator(ctx, deviceFeatures(), s, d.classes, all, d.selectors)
}

// tainted returns a slice with the taints that rules add to its devices.
func tainted(s *resourcev1.ResourceSlice, rules []any) *resourcev1.ResourceSlice {
	given := s
	matches := func(wanted *string, is string) bool { return wanted == nil || *wanted == is }
	for _, obj := range rules {
		rule := obj.(*resourcev1beta2.DeviceTaintRule)
		selected, t := rule.Spec.DeviceSelector, &rule.Spec.Taint
		if selected == nil || !matches(selected.Driver, s.Spec.Driver) ||
			!matches(selected.Pool, s.Spec.Pool.Name) {
			continue
		}
		for i := range s.Spec.Devices {
			if !matches(selected.Device, s.Spec.Devices[i].Name) {
				continue
			}
			if s == given {
				s = given.DeepCopy()
			}
			s.Spec.Devices[i].Taints = append(s.Spec.Devices[i].Taints, resourcev1.DeviceTaint{
				Key: t.Key, Value: t.Value, Effect: resourcev1.DeviceTaintEffect(t.Effect),
				TimeAdded: t.TimeAdded,
			})
		}
	}
	return s
}

// claimsOf returns the claims of a pod. Without all of them, there is no point in trying to find a
// node.
func (d *devices) claimsOf(p *pod) ([]*resourcev1.ResourceClaim, error) {
	var found []*resourcev1.ResourceClaim
	for i := range p.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(p.Pod, &p.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name == nil {
			continue // the pod needs no claim
		}
		c, err := d.claims.ResourceClaims(p.Namespace).Get(*name)
		switch {
		case err != nil:
			return nil, err
		case c.DeletionTimestamp != nil:
			return nil, fmt.Errorf("resourceclaim %q is being deleted", c.Name)
		}
		if owned {
			if err := resourceclaim.IsForPod(p.Pod, c, false); err != nil {
				return nil, err
			}
		}
		if !slices.Contains(found, c) {
			found = append(found, c)
		}
	}
	return found, nil
}

// awaits reports whether a pod waits, without being told so, for a claim that is missing or is
// being allocated for another pod.
func (d *devices) awaits(p *pod) bool {
	claims, err := d.claimsOf(p)
	return err != nil || slices.ContainsFunc(claims, func(c *resourcev1.ResourceClaim) bool {
		return d.allocated[c.UID] != nil
	})
}

// podDevices are the claims of devices of a pod.
type podDevices struct {
	allocated []*resourcev1.ResourceClaim
	open      []*resourcev1.ResourceClaim // allocated once the pod has a node
	// useless are those of the allocated claims that rule out a node.
	useless []*resourcev1.ResourceClaim
	// offered are the requested resources that device classes offer, and stale is the claim for
	// them of an attempt in vain. It may be nil.
	offered []corev1.ResourceName
	stale   *resourcev1.ResourceClaim
	claimed bool // there is an allocated claim for them, whose devices are awaited
	// ask are the questions about nodes that may be fit for the pod to which the allocator of
	// devices has not given an answer.
	ask []question
}

// question is whether a node has devices for the claims of a pod.
type question struct {
	node *corev1.Node
	// extended is a further claim, for extended resources. It may be nil.
	extended *resourcev1.ResourceClaim
	mappings []corev1.ContainerExtendedResourceRequest
}

func (a *attempt) question(n *node) question {
	extended, mappings := a.extendedClaim(n)
	return question{n.Node, extended, mappings}
}

// prepareDevices looks up the claims of devices of the pod.
func (a *attempt) prepareDevices() verdict {
	whole := func(format string, args ...any) verdict {
		return verdict{reason: fmt.Sprintf(format, args...), final: true, helps: devicesChanged}
	}
	found := &a.prepared.devices
	*found = podDevices{}
	if len(a.Spec.ResourceClaims)+len(a.extended) == 0 {
		return verdict{}
	}
	claims, err := a.devices.claimsOf(a.pod)
	if err == nil {
		err = a.prepareExtended()
	}
	if err != nil {
		return whole("%v", err)
	}
	for _, c := range claims {
		switch {
		case c.Status.Allocation == nil:
			found.open = append(found.open, c)
		case !resourceclaim.IsReservedForPod(a.Pod, c, false) && !resourceclaim.CanBeReserved(c):
			return whole("resourceclaim in use")
		default:
			found.allocated = append(found.allocated, c)
		}
	}
	if len(found.open)+len(found.offered) == 0 {
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
			if request.Exactly != nil {
				if v := a.checkClass(request.Name, request.Exactly.DeviceClassName); !v.ok() {
					return v
				}
			}
			for _, one := range request.FirstAvailable {
				name := resourceclaim.CreateSubRequestRef(request.Name, one.Name)
				if v := a.checkClass(name, one.DeviceClassName); !v.ok() {
					return v
				}
			}
		}
	}
	return verdict{}
}

func (a *attempt) checkClass(request, class string) verdict {
	if _, err := a.devices.classes.Get(class); err != nil {
		return verdict{
			reason: fmt.Sprintf("request %s: device class %s does not exist", request, class),
			final:  true, helps: devicesChanged,
		}
	}
	return verdict{}
}

func (a *attempt) filterDevices(n *node) verdict {
	final := func(reason string) verdict {
		return verdict{reason: reason, final: true, helps: nodeChanged | devicesChanged}
	}
	found, available := &a.prepared.devices, true
	if found.stale != nil {
		return final("cannot schedule extended resource claim")
	}
	for _, c := range found.allocated {
		if _, never := lacksConditions(c); never != nil || !allocatedFor(c, n) {
			available = false
			if !slices.Contains(found.useless, c) {
				found.useless = append(found.useless, c)
			}
		}
	}
	if !available {
		return final("resourceclaim not available on the node")
	}
	asked := a.question(n)
	if len(found.open) == 0 && asked.extended == nil {
		return verdict{}
	}
	if a.search != nil {
		if answer, known := a.search.answers[n.name]; known && answer.err != nil {
			v := final(answer.err.Error())
			if answer.broken {
				v.err = answer.err
			}
			return v
		} else if known {
			return verdict{}
		}
	}
	found.ask = append(found.ask, asked)
	return verdict{reason: "node(s) whose devices are unknown", final: true}
}

// allocatedFor reports whether the devices of a claim can be used on a node.
func allocatedFor(c *resourcev1.ResourceClaim, n *node) bool {
	if c.Status.Allocation.NodeSelector == nil {
		return true
	}
	selector, err := nodeaffinity.NewNodeSelector(c.Status.Allocation.NodeSelector)
	return err == nil && selector.Match(n.Node)
}

// deallocation returns an allocated claim that may get other devices, so that the pod fits
// somewhere, or nil.
func (a *attempt) deallocation() *resourcev1.ResourceClaim {
	for _, c := range a.prepared.devices.useless {
		users := c.Status.ReservedFor
		if len(users) == 0 || len(users) == 1 && users[0].UID == a.UID {
			return c
		}
	}
	return nil
}

// deallocate takes the devices away from a claim.
func (r *run) deallocate(ctx context.Context, c *resourcev1.ResourceClaim) error {
	c = c.DeepCopy()
	c.Status.Allocation, c.Status.Devices, c.Status.ReservedFor = nil, nil, nil
	_, err := r.Client.ResourceV1().ResourceClaims(c.Namespace).UpdateStatus(ctx, c,
		metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("deallocate claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}

// deviceScores prefers nodes on which the first of several alternatives for a device is there.
func (a *attempt) deviceScores(nodes []*node) []int64 {
	if len(a.prepared.devices.open) == 0 {
		return nil
	}
	scores := make([]int64, len(nodes))
	for i, n := range nodes {
		for j, c := range a.prepared.devices.open {
			scores[i] += scoreAlternatives(c, &a.search.answers[n.name].results[j])
		}
	}
	return scaled(scores)
}

func scoreAlternatives(
	c *resourcev1.ResourceClaim, allocation *resourcev1.AllocationResult,
) (score int64) {
	for _, request := range c.Spec.Devices.Requests {
		for i, one := range request.FirstAvailable {
			name := resourceclaim.CreateSubRequestRef(request.Name, one.Name)
			if slices.ContainsFunc(allocation.Devices.Results,
				func(result resourcev1.DeviceRequestAllocationResult) bool {
					return result.Request == name
				}) {
				score += int64(resourcev1.FirstAvailableDeviceRequestMaxSize - i)
			}
		}
	}
	return score
}

// reservation is a claim that is to be reserved for a pod.
type reservation struct {
	claim      *resourcev1.ResourceClaim
	allocation *resourcev1.AllocationResult // nil if the claim is allocated
	// mappings say which containers use the claim, if it is one for extended resources that is to
	// be made.
	mappings []corev1.ContainerExtendedResourceRequest
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
		list = append(list, reservation{claim: c, allocation: &a.search.answers[n.name].results[i]})
	}
	if a.search != nil {
		if found := a.search.answers[n.name]; found.asked.extended != nil {
			list = append(list, reservation{
				found.asked.extended, &found.results[len(found.results)-1], found.asked.mappings,
			})
		}
	}
	return list
}

// reserve writes the allocations and reserves the claims for a pod.
func (r *run) reserve(ctx context.Context, p *pod, list []reservation) error {
	for i := range list {
		if err := r.reserveOne(ctx, p, &list[i]); err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, other := range list[i:] {
				delete(r.devices.allocated, other.claim.UID)
			}
			r.queue.happenedToAll(devicesChanged, nil)
			return fmt.Errorf("running PreBind plugin %q: %w", "DynamicResources", err)
		}
	}
	return nil
}

// unreserve deletes the claim for extended resources that was made for an attempt in vain. Other
// claims stay reserved for the pod, which is tried again.
func (r *run) unreserve(ctx context.Context, list []reservation) error {
	for _, reserved := range list {
		if reserved.mappings != nil && reserved.claim.Name != "" {
			return r.removeExtended(ctx, reserved.claim)
		}
	}
	return nil
}

func (r *run) reserveOne(ctx context.Context, p *pod, reserved *reservation) error {
	if reserved.mappings != nil {
		if err := r.createExtended(ctx, reserved); err != nil {
			return err
		}
	}
	claims, c := r.Client.ResourceV1().ResourceClaims(p.Namespace), reserved.claim.DeepCopy()
	change := "reservation"
	if reserved.allocation != nil {
		change = "allocation and reservation"
		if !slices.Contains(c.Finalizers, resourcev1.Finalizer) {
			c.Finalizers = append(c.Finalizers, resourcev1.Finalizer)
			var err error
			if c, err = claims.Update(ctx, c, metav1.UpdateOptions{}); err != nil {
				return fmt.Errorf("add finalizer to claim %s/%s: %w", p.Namespace, reserved.claim.Name, err)
			}
		}
		c.Status.Allocation = reserved.allocation.DeepCopy()
	}
	if c.Status.Allocation != nil && c.Status.Allocation.AllocationTimestamp == nil &&
		features.Enabled(features.DRADeviceBindingConditions) {
		c.Status.Allocation.AllocationTimestamp = new(metav1.Now())
	}
	c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
		Resource: "pods", Name: p.Name, UID: p.UID,
	})
	_, err := claims.UpdateStatus(ctx, c, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("add %s to claim %s/%s: %w", change, p.Namespace, c.Name, err)
	}
	if reserved.mappings == nil {
		return nil
	}
	return r.patchStatus(ctx, p.Pod, map[string]any{
		"extendedResourceClaimStatus": corev1.PodExtendedResourceClaimStatus{
			ResourceClaimName: c.Name, RequestMappings: reserved.mappings,
		},
	})
}
