package resourceclaims

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

const (
	// fieldManager is the manager of the names of claims in the status of pods.
	fieldManager = "ResourceClaimController"
	// longestBase leaves space in a name for a hyphen and five random characters.
	longestBase = 57
)

// made remembers the claims that were made for pods. The informers may not have seen them yet.
type made struct {
	mu    sync.Mutex
	names map[types.UID]map[string]string // by pod and the pod's name of the claim
}

func (m *made) add(pod types.UID, claim, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names == nil {
		m.names = map[types.UID]map[string]string{}
	}
	if m.names[pod] == nil {
		m.names[pod] = map[string]string{}
	}
	m.names[pod][claim] = name
}

func (m *made) name(pod types.UID, claim string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names[pod][claim]
}

func (m *made) forget(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.names, pod)
}

// syncPod makes the claims of a pod and reserves them once the pod is on a node.
func (c *controller) syncPod(ctx context.Context, namespace, name string) error {
	pod, err := c.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !pods.Active(pod) {
		return err
	}
	names := map[string]string{}
	for i := range pod.Spec.ResourceClaims {
		of := &pod.Spec.ResourceClaims[i]
		claim, err := c.ensure(ctx, pod, of)
		if err != nil {
			c.Recorder.Eventf(pod, corev1.EventTypeWarning, "FailedResourceClaimCreation",
				"PodResourceClaim %s: %v", of.Name, err)
			return err
		}
		if claim == nil {
			continue
		}
		if of.ResourceClaimTemplateName != nil {
			names[of.Name] = claim.Name
		}
		if err := c.reserve(ctx, pod, claim); err != nil {
			return err
		}
	}
	return c.writeNames(ctx, pod, names)
}

// ensure returns a claim of a pod, which it makes if it has to. It returns nil for a claim that
// somebody else has yet to make.
func (c *controller) ensure(
	ctx context.Context, pod *corev1.Pod, of *corev1.PodResourceClaim,
) (*resourcev1.ResourceClaim, error) {
	name, _, err := resourceclaim.Name(pod, of)
	fromTemplate := of.ResourceClaimTemplateName != nil
	switch {
	case errors.Is(err, resourceclaim.ErrClaimNotFound):
	case err != nil || name == nil: // the pod does not need a claim
		return nil, err
	default:
		claim, err := c.get(ctx, pod.Namespace, *name)
		if err == nil && fromTemplate {
			err = resourceclaim.IsForPod(pod, claim, false)
		}
		if !apierrors.IsNotFound(err) {
			return claim, err
		}
	}
	if !fromTemplate {
		return nil, nil
	}
	// The status of the pod may be older than its claim, also if it has the name of another one.
	if claim, err := c.find(pod, of); claim != nil || err != nil {
		return claim, err
	}
	if name := c.made.name(pod.UID, of.Name); name != "" {
		claim, err := c.get(ctx, pod.Namespace, name)
		if !apierrors.IsNotFound(err) {
			return claim, err
		}
	}
	return c.create(ctx, pod, of)
}

// get returns a claim, which the informer may not have yet.
func (c *controller) get(
	ctx context.Context, namespace, name string,
) (*resourcev1.ResourceClaim, error) {
	claim, err := c.claims.ResourceClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		claim, err = c.Client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return claim, err
}

// find returns the claim that was made for a pod before the pod's status could say so, or nil.
func (c *controller) find(
	pod *corev1.Pod, of *corev1.PodResourceClaim,
) (*resourcev1.ResourceClaim, error) {
	list, err := c.claims.ResourceClaims(pod.Namespace).List(labels.Everything())
	i := slices.IndexFunc(list, func(claim *resourcev1.ResourceClaim) bool {
		return metav1.IsControlledBy(claim, pod) &&
			claim.Annotations[resourcev1.PodResourceClaimAnnotation] == of.Name
	})
	if i < 0 {
		return nil, err
	}
	return list[i], nil
}

func (c *controller) create(
	ctx context.Context, pod *corev1.Pod, of *corev1.PodResourceClaim,
) (*resourcev1.ResourceClaim, error) {
	template, err := c.templates.ResourceClaimTemplates(pod.Namespace).
		Get(*of.ResourceClaimTemplateName)
	if err != nil {
		return nil, fmt.Errorf("resource claim template %q: %w", *of.ResourceClaimTemplateName, err)
	}
	annotations := map[string]string{}
	maps.Copy(annotations, template.Spec.Annotations)
	annotations[resourcev1.PodResourceClaimAnnotation] = of.Name
	claim, err := c.Client.ResourceV1().ResourceClaims(pod.Namespace).Create(ctx,
		&resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName: baseName(pod.Name, of.Name),
				Labels:       template.Spec.Labels, Annotations: annotations,
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true),
				}},
			},
			Spec: template.Spec.Spec,
		}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create resource claim: %w", err)
	}
	c.made.add(pod.UID, of.Name, claim.Name)
	return claim, nil
}

// baseName returns what the name of a pod's claim begins with. Long names are cut in proportion, so
// that something of each remains.
func baseName(pod, claim string) string {
	base := pod + "-" + claim + "-"
	if n := len(base); n > longestBase {
		base = pod[:len(pod)*longestBase/n] + "-" + claim[:len(claim)*longestBase/n]
	}
	return base
}

// reserve reserves an allocated claim for a pod on a node. The scheduler has done so already,
// unless somebody else has bound the pod.
func (c *controller) reserve(
	ctx context.Context, pod *corev1.Pod, claim *resourcev1.ResourceClaim,
) error {
	if pod.Spec.NodeName == "" || claim.Status.Allocation == nil ||
		resourceclaim.IsReservedForPod(pod, claim, false) || !resourceclaim.CanBeReserved(claim) {
		return nil
	}
	claim = claim.DeepCopy()
	claim.Status.ReservedFor = append(claim.Status.ReservedFor,
		resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	_, err := c.Client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, claim,
		metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("reserve resource claim %s: %w", claim.Name, err)
	}
	return nil
}

// writeNames writes the names of the claims that were made for a pod to its status.
func (c *controller) writeNames(
	ctx context.Context, pod *corev1.Pod, names map[string]string,
) error {
	written := 0
	for _, status := range pod.Status.ResourceClaimStatuses {
		if name, ok := names[status.Name]; ok && status.ResourceClaimName != nil &&
			*status.ResourceClaimName == name {
			written++
		}
	}
	if written == len(names) {
		return nil
	}
	status := applycorev1.PodStatus()
	for _, of := range slices.Sorted(maps.Keys(names)) {
		status.WithResourceClaimStatuses(applycorev1.PodResourceClaimStatus().WithName(of).
			WithResourceClaimName(names[of]))
	}
	_, err := c.Client.CoreV1().Pods(pod.Namespace).ApplyStatus(ctx,
		applycorev1.Pod(pod.Name, pod.Namespace).WithUID(pod.UID).WithStatus(status),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("write the names of resource claims: %w", err)
	}
	return nil
}
