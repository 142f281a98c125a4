package resourceclaims

import (
	"context"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// syncClaim frees a claim that no pod uses anymore, and deletes it if it was made for a pod that
// does not need it.
func (c *controller) syncClaim(ctx context.Context, namespace, name string) error {
	claim, err := c.claims.ResourceClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	claim = claim.DeepCopy()
	used := len(claim.Status.ReservedFor)
	if err := c.release(ctx, claim); err != nil {
		return fmt.Errorf("release resource claim %s: %w", name, err)
	}
	left := len(claim.Status.ReservedFor)
	// A driver may allocate a claim before anything uses it, so a claim that is only unused stays
	// allocated.
	if left < used || left == 0 && claim.DeletionTimestamp != nil && protected(claim) {
		if err := c.free(ctx, claim); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("free resource claim %s: %w", name, err)
		}
	}
	if left > 0 || claim.DeletionTimestamp != nil {
		return nil
	}
	return c.deleteUnneeded(ctx, claim)
}

// release removes the pods that are gone or done from those for which a claim is reserved.
func (c *controller) release(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	var kept []resourcev1.ResourceClaimConsumerReference
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			needed, err := c.needs(ctx, claim.Namespace, consumer.Name, consumer.UID)
			if err != nil {
				return err
			}
			if !needed {
				continue
			}
		}
		kept = append(kept, consumer)
	}
	claim.Status.ReservedFor = kept
	return nil
}

// needs reports whether a pod needs its claims.
func (c *controller) needs(
	ctx context.Context, namespace, name string, uid types.UID,
) (bool, error) {
	pod, err := c.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		// The scheduler reserves a claim for a pod that the informer may not have yet.
		pod, err = c.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && pod.UID == uid && !done(pod), err
}

// free writes for which pods a claim is reserved. If there are none, the claim loses its allocation
// and the finalizer that protects the allocation.
func (c *controller) free(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	client := c.Client.ResourceV1().ResourceClaims(claim.Namespace)
	if len(claim.Status.ReservedFor) == 0 && protected(claim) {
		claim.Status.Allocation = nil
	}
	updated, err := client.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err != nil || updated.Status.Allocation != nil || !protected(updated) {
		return err
	}
	updated.Finalizers = slices.DeleteFunc(updated.Finalizers, func(f string) bool {
		return f == resourcev1.Finalizer
	})
	_, err = client.Update(ctx, updated, metav1.UpdateOptions{})
	return err
}

// protected reports whether a claim has the finalizer that protects its allocation.
func protected(claim *resourcev1.ResourceClaim) bool {
	return slices.Contains(claim.Finalizers, resourcev1.Finalizer)
}

// deleteUnneeded deletes a claim that was made for a pod that is done or was replaced. If the pod
// is gone, the garbage collector deletes the claim.
func (c *controller) deleteUnneeded(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil || owner.APIVersion != "v1" || owner.Kind != "Pod" {
		return nil
	}
	pod, err := c.pods.Pods(claim.Namespace).Get(owner.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || pod.UID == owner.UID && !done(pod) {
		return err
	}
	err = c.Client.ResourceV1().ResourceClaims(claim.Namespace).Delete(ctx, claim.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(claim.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete resource claim %s: %w", claim.Name, err)
	}
	return nil
}
