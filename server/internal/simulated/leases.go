package simulated

import (
	"context"
	"fmt"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// A renewal costs 1 ms of CPU. So beyond some nodes, each is renewed less often than a kubelet
// would, who has to expect that some of its requests fail.
const manyNodes = 100

// leaseTick is between the times at which leases are renewed. Renewals at the same time cost half
// as much, because they share what it costs to wake all that takes part.
const leaseTick = 500 * time.Millisecond

// renewLease renews the lease of a node. It returns when to renew it again. The first renewals of
// the nodes are at different times.
func (n *Nodes) renewLease(ctx context.Context, name string) (time.Duration, error) {
	n.mu.Lock()
	node, ok := n.byName[name]
	if !ok || node.uid == "" || node.stopped || len(node.indices) == 0 {
		n.mu.Unlock()
		return 0, nil
	}
	uid, index, renewal := node.uid, node.index, n.LeaseDuration/4
	if n.working > manyNodes {
		renewal = n.LeaseDuration / 2
	}
	n.mu.Unlock()
	held := &node.lease
	isNew := held.uid != uid
	if isNew {
		*held = lease{uid: uid}
	}
	if err := n.renew(ctx, name, held); err != nil {
		held.last = nil
		return 0, fmt.Errorf("renew the lease of node %s: %w", name, err)
	}
	if isNew {
		renewal = time.Duration(float64(renewal) * spread(index))
	}
	return untilTick(time.Now(), renewal), nil
}

// untilTick returns a duration that ends at the last tick within another one, or that one if it has
// none.
func untilTick(now time.Time, d time.Duration) time.Duration {
	if until := now.Add(d).Truncate(leaseTick).Sub(now); until > 0 {
		return until
	}
	return d
}

// spread returns a number from 0 to 1. Those of any successive indices are evenly spread.
func spread(index int) float64 {
	_, fraction := math.Modf(float64(index+1) * math.Phi)
	return fraction
}

// lease is that of a node.
type lease struct {
	uid  types.UID             // of the node
	last *coordinationv1.Lease // as it was last written, or nil
}

func (n *Nodes) renew(ctx context.Context, name string, held *lease) (err error) {
	client := n.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	if held.last != nil {
		updated, err := client.Update(ctx, n.renewed(held.last, name, held.uid), metav1.UpdateOptions{})
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			held.last = updated
			return err
		}
	}
	found, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		held.last, err = client.Create(ctx, n.renewed(&coordinationv1.Lease{}, name, held.uid),
			metav1.CreateOptions{})
		return err
	}
	if err == nil {
		held.last, err = client.Update(ctx, n.renewed(found, name, held.uid), metav1.UpdateOptions{})
	}
	return err
}

func (n *Nodes) renewed(
	old *coordinationv1.Lease, name string, uid types.UID,
) *coordinationv1.Lease {
	l := old.DeepCopy()
	l.Name, l.Namespace = name, corev1.NamespaceNodeLease
	l.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: name, UID: uid,
	}}
	l.Spec.HolderIdentity = &name
	l.Spec.LeaseDurationSeconds = ptr.To(int32(n.LeaseDuration / time.Second))
	l.Spec.RenewTime = ptr.To(metav1.NowMicro())
	return l
}
