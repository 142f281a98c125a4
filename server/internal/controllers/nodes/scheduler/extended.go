package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/kinproc/kinproc/chain/features"
)

// A device class can offer its devices as an extended resource (KEP-5004). For a pod that requests
// that resource and goes to a node that does not have it otherwise, the scheduler makes a claim.

// isExtended reports whether a device class may offer a resource.
func isExtended(name corev1.ResourceName) bool {
	if !features.Enabled(features.DRAExtendedResource) {
		return false
	}
	s := string(name)
	return strings.HasPrefix(s, resourcev1.ResourceDeviceClassPrefix) ||
		strings.Contains(s, "/") && !strings.Contains(s, corev1.ResourceDefaultNamespacePrefix) &&
			!strings.HasPrefix(s, corev1.DefaultResourceRequestsPrefix)
}

// prepareExtended finds out which of the requested resources are offered by a device class.
func (a *attempt) prepareExtended() error {
	found := &a.prepared.devices
	for _, name := range a.extended {
		if a.devices.offers.GetDeviceClass(name) != nil {
			found.offered = append(found.offered, name)
		}
	}
	if len(found.offered) == 0 {
		return nil
	}
	all, err := a.devices.claims.ResourceClaims(a.Namespace).List(labels.Everything())
	if err != nil {
		return err
	}
	for _, c := range all {
		if owner := metav1.GetControllerOfNoCopy(c); owner != nil && owner.UID == a.UID &&
			c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true" {
			if c.Status.Allocation != nil && hasConditions(c.Status.Allocation) &&
				resourceclaim.IsReservedForPod(a.Pod, c, false) {
				found.allocated, found.claimed = append(found.allocated, c), true
			} else {
				found.stale = c
			}
		}
	}
	return nil
}

// extendedClaim returns the claim for those resources that a node has only because device classes
// offer them, and which request is for which container. It returns nil if there are none.
func (a *attempt) extendedClaim(
	n *node,
) (*resourcev1.ResourceClaim, []corev1.ContainerExtendedResourceRequest) {
	if a.prepared.devices.claimed {
		return nil, nil
	}
	var requests []resourcev1.DeviceRequest
	var mappings []corev1.ContainerExtendedResourceRequest
	for _, name := range a.prepared.devices.offered {
		class := a.devices.offers.GetDeviceClass(name)
		if class == nil || n.allocatable.others[name] > 0 {
			continue
		}
		more, for1 := deviceRequests(a.Pod, name, class.Name)
		requests, mappings = append(requests, more...), append(mappings, for1...)
	}
	if len(requests) == 0 {
		return nil, nil
	}
	slices.SortFunc(requests, func(r, s resourcev1.DeviceRequest) int {
		return cmp.Compare(r.Name, s.Name)
	})
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a.Namespace, GenerateName: a.Name + "-extended-resources-",
			UID:         extendedUID(a.Pod), // until there is one
			Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: a.Name, UID: a.UID, Controller: new(true),
			}},
		},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}},
	}, mappings
}

func extendedUID(p *corev1.Pod) types.UID { return "extended-resources-of-" + p.UID }

// deviceRequests returns the requests for the devices of a class that stand for a resource of a
// pod, and which containers use them. Init containers use what containers after them will need, and
// share what they need beyond that.
func deviceRequests(
	p *corev1.Pod, name corev1.ResourceName, class string,
) (requests []resourcev1.DeviceRequest, mappings []corev1.ContainerExtendedResourceRequest) {
	containers := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	lasts := func(i int) bool {
		policy := containers[i].RestartPolicy
		return i >= len(p.Spec.InitContainers) ||
			policy != nil && *policy == corev1.ContainerRestartPolicyAlways
	}
	use := func(i int, request string) {
		mappings = append(mappings, corev1.ContainerExtendedResourceRequest{
			ContainerName: containers[i].Name, ResourceName: string(name), RequestName: request,
		})
	}
	lasting := make([]int64, len(containers))
	for i := range containers {
		if !lasts(i) {
			continue
		}
		if lasting[i] = amount(&containers[i], name); lasting[i] > 0 {
			requests = append(requests, deviceRequest(i, &containers[i], name, class, lasting[i]))
			use(i, requestName(i, &containers[i], name))
		}
	}
	// The largest of what init containers need beyond that, and the first container that needs it.
	var extra int64
	largest := -1
	var sharing []int // indexes of mappings to it
	for i := range containers {
		if lasts(i) {
			continue
		}
		missing := amount(&containers[i], name)
		for j := i; j < len(containers) && missing > 0; j++ {
			if lasting[j] > 0 {
				use(i, requestName(j, &containers[j], name))
				missing -= lasting[j]
			}
		}
		if missing <= 0 {
			continue
		}
		sharing = append(sharing, len(mappings))
		use(i, "")
		if missing > extra {
			extra, largest = missing, i
		}
	}
	if largest >= 0 {
		one := deviceRequest(largest, &containers[largest], name, class, extra)
		requests = append(requests, one)
		for _, i := range sharing {
			mappings[i].RequestName = one.Name
		}
	}
	return requests, mappings
}

func amount(c *corev1.Container, name corev1.ResourceName) int64 {
	quantity := c.Resources.Requests[name]
	whole, _ := quantity.AsInt64()
	return whole
}

// requestName names a request after the container and the place of the resource among those that
// the container requests.
func requestName(i int, c *corev1.Container, name corev1.ResourceName) string {
	before := 0
	for other := range c.Resources.Requests {
		if other < name {
			before++
		}
	}
	return fmt.Sprintf("container-%d-request-%d", i, before)
}

func deviceRequest(
	i int, c *corev1.Container, name corev1.ResourceName, class string, count int64,
) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{
		Name: requestName(i, c, name),
		Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount,
			Count: count,
		},
	}
}

// createExtended creates the claim for the extended resources of a pod.
func (r *run) createExtended(ctx context.Context, reserved *reservation) error {
	planned := reserved.claim
	c := planned.DeepCopy()
	c.UID = ""
	created, err := r.Client.ResourceV1().ResourceClaims(c.Namespace).Create(ctx, c,
		metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create claim for extended resources %s/: %w", c.Namespace, err)
	}
	reserved.claim = created
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.devices.allocated, planned.UID)
	r.devices.allocated[created.UID] = reserved.allocation
	return nil
}

// removeExtended deletes a claim for the extended resources of a pod, which is not of use.
func (r *run) removeExtended(ctx context.Context, c *resourcev1.ResourceClaim) error {
	claims := r.Client.ResourceV1().ResourceClaims(c.Namespace)
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`,
		c.UID, resourcev1.Finalizer)
	_, err := claims.Patch(ctx, c.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err == nil {
		err = claims.Delete(ctx, c.Name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(c.UID)),
		})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}
