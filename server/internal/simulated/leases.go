package simulated

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
)

const (
	// leaseTick is how often due leases are looked for.
	leaseTick = 100 * time.Millisecond
	// A renewal costs 1 ms of CPU. So beyond some nodes, each is renewed less often than a kubelet
	// would, who has to expect that some of its requests fail.
	manyNodes = 100
)

// renewal returns how often to renew the lease of a node.
func (n *Nodes) renewal() time.Duration {
	if len(n.byName) > manyNodes {
		return n.LeaseDuration / 2
	}
	return n.LeaseDuration / 4
}

// renewLeases renews the leases of all nodes, spread over time, until ctx ends.
func (n *Nodes) renewLeases(ctx context.Context) {
	leases, renewal := map[string]*lease{}, n.renewal()
	tick := time.NewTicker(max(leaseTick, min(renewal/time.Duration(len(n.byName)), renewal/10)))
	defer tick.Stop()
	for {
		now := time.Now()
		for name, node := range n.byName {
			uid, works := n.identity(node)
			held := leases[name]
			if held == nil || held.uid != uid {
				// the first renewals are at different times
				held = &lease{uid: uid, due: now}
				leases[name] = held
				if works {
					n.renew(ctx, name, held)
					held.due = now.Add(renewal * time.Duration(len(leases)) / time.Duration(len(n.byName)))
				}
			} else if works && !now.Before(held.due) {
				n.renew(ctx, name, held)
				held.due = now.Add(renewal)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (n *Nodes) identity(node *node) (uid types.UID, works bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return node.uid, node.uid != "" && !node.stopped
}

// lease is that of a node.
type lease struct {
	uid  types.UID // of the node
	due  time.Time
	last *coordinationv1.Lease // as it was last written, or nil
}

func (n *Nodes) renew(ctx context.Context, name string, held *lease) {
	if err := n.tryRenew(ctx, name, held); err != nil && ctx.Err() == nil {
		held.last = nil
		utilruntime.HandleErrorWithContext(ctx, err, "Renewing a lease failed", "node", name)
	}
}

func (n *Nodes) tryRenew(ctx context.Context, name string, held *lease) (err error) {
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
