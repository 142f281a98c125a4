package protection

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// claimIndex is the index of pods by the keys of the claims that they name.
const claimIndex = "podsByClaim"

// unused says in the status of bound claims whether a pod uses them (KEP-5541). Other than for the
// protection, a pod without a node uses its claims, and a pod that has ended does not.
type unused struct {
	*loop.Controller
	claims, pods cache.SharedIndexInformer
}

// saysUnused adds to the work of the protection of claims.
func saysUnused(begin func(*loop.Controller) loop.Work) func(*loop.Controller) loop.Work {
	return func(l *loop.Controller) loop.Work {
		if !features.Enabled(features.PersistentVolumeClaimUnusedSinceTime) {
			return begin(l)
		}
		u := unused{l, l.Informer(&corev1.PersistentVolumeClaim{}), l.Informer(&corev1.Pod{})}
		work := begin(l)
		protect := work.Sync
		work.Sync = func(ctx context.Context, key string) (time.Duration, error) {
			if err := u.sync(ctx, key); err != nil {
				return 0, err
			}
			return protect(ctx, key)
		}
		pods := loop.On(u.pods, func(old, pod *corev1.Pod) {
			for _, p := range []*corev1.Pod{old, pod} {
				if p != nil {
					for _, key := range claimsOf(p) {
						u.Enqueue(key)
					}
				}
			}
		})
		pods.Indexers = cache.Indexers{claimIndex: func(obj any) ([]string, error) {
			return claimsOf(obj.(*corev1.Pod)), nil
		}}
		work.Watches = append(work.Watches, pods,
			loop.On(u.claims, func(_, c *corev1.PersistentVolumeClaim) {
				if c != nil && conditionOf(c) == nil {
					u.Enqueue(loop.Key(c))
				}
			}))
		return work
	}
}

// claimsOf returns the keys of the claims that a pod names.
func claimsOf(p *corev1.Pod) (keys []string) {
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			keys = append(keys, p.Namespace+"/"+v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			keys = append(keys, p.Namespace+"/"+ephemeral.VolumeClaimName(p, v))
		}
	}
	return keys
}

func conditionOf(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimCondition {
	return loop.FindCondition(c.Status.Conditions, corev1.PersistentVolumeClaimUnused,
		conditionFields)
}

func conditionFields(c *corev1.PersistentVolumeClaimCondition) (
	corev1.PersistentVolumeClaimConditionType, corev1.ConditionStatus, *metav1.Time,
) {
	return c.Type, c.Status, &c.LastTransitionTime
}

func (u unused) sync(ctx context.Context, key string) error {
	claim := loop.Get[corev1.PersistentVolumeClaim](u.claims, key)
	if claim == nil || claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound {
		return nil
	}
	says := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue,
		Reason: "NoPodsUsingPVC", Message: "No pods are currently referencing this PVC",
		LastTransitionTime: metav1.Now(),
	}
	pods, err := u.pods.GetIndexer().ByIndex(claimIndex, key)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(pods, func(obj any) bool { return refers(obj.(*corev1.Pod), claim) }) {
		says.Status, says.Reason = corev1.ConditionFalse, "PodUsingPVC"
		says.Message = "A pod is currently referencing this PVC"
	}
	if is := conditionOf(claim); is != nil && is.Status == says.Status {
		return nil
	}
	claim = claim.DeepCopy()
	loop.SetCondition(&claim.Status.Conditions, says, conditionFields)
	_, err = u.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim,
		metav1.UpdateOptions{})
	return loop.IgnoreNotFound(err)
}

// refers reports whether a pod that has not ended refers to a claim.
func refers(p *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	switch {
	case p.Status.Phase == corev1.PodFailed, p.Status.Phase == corev1.PodSucceeded:
		return false
	case p.DeletionTimestamp != nil && !slices.ContainsFunc(p.Status.ContainerStatuses,
		func(s corev1.ContainerStatus) bool {
			return s.State.Terminated == nil && s.State.Waiting == nil
		}):
		return false
	}
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name ||
			v.Ephemeral != nil && ephemeral.VolumeClaimName(p, &v) == claim.Name &&
				ephemeral.VolumeIsForPod(p, claim) == nil
	})
}
