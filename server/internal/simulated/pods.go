package simulated

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// ended reports whether all containers of a pod have ended for good.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// syncPod does what the node of a pod has to do now. It returns when there is more to do.
//
// The status follows from the pod that the informer has. If that is not the newest one, the update
// is refused, and the informer is about to tell of the newer one.
func (n *Nodes) syncPod(ctx context.Context, namespace, name string) (time.Duration, error) {
	p, err := n.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	node, works := n.host(p)
	if !works {
		return 0, nil
	}
	if p.DeletionTimestamp != nil {
		return n.stopPod(ctx, node, p)
	}
	if ended(p) {
		n.release(node, p)
		return 0, nil
	}
	if r, wait := n.admit(node, p); wait > 0 {
		return wait, nil
	} else if r != nil {
		return 0, n.reject(ctx, p, r)
	}
	m := n.momentOf(node, p)
	m.advance()
	if m.noAddress {
		return 0, loop.Poll(time.Second)
	}
	if err := n.write(ctx, p, &m.status); err != nil {
		return 0, err
	}
	if m.wake.IsZero() {
		return 0, nil
	}
	return max(time.Millisecond, time.Until(m.wake)), nil
}

// write updates the status of a pod, if it is to change.
func (n *Nodes) write(ctx context.Context, p *corev1.Pod, status *corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(&p.Status, status) {
		return nil
	}
	updated := *p // only its status differs, and the client does not change it
	updated.Status = *status
	_, err := n.Client.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, &updated, metav1.UpdateOptions{})
	return loop.IgnoreChanged(err)
}

// stopDelay is how long containers take to stop, so that clients see that the pod is terminating
// before it is gone.
const stopDelay = 10 * time.Millisecond

// stopPod stops the containers of a pod that is being deleted, and deletes it for good.
func (n *Nodes) stopPod(ctx context.Context, node *node, p *corev1.Pod) (time.Duration, error) {
	m := n.momentOf(node, p)
	grace := time.Duration(ptr.Deref(p.DeletionGracePeriodSeconds, 0)) * time.Second
	stops := m.deleted(grace).Add(min(grace, duration(m.pod, stopDelayAnnotation, stopDelay)))
	if wait := time.Until(stops); wait > 0 && !ended(p) {
		return wait, nil
	}
	// Without a finalizer, nobody would see the status for more than an instant.
	if len(p.Finalizers) > 0 && !ended(p) {
		m.stop()
		if err := n.write(ctx, p, &m.status); err != nil {
			return 0, err
		}
	}
	if grace == 0 && len(p.Finalizers) > 0 {
		return 0, nil // it goes with its last finalizer
	}
	err := n.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(p.UID)),
	})
	return 0, loop.IgnoreChanged(err)
}

// clock has the exact times at which the parts of a pod began. Those that the pod says are in
// seconds, and may be in the future if the clock of this machine has been set back.
type clock map[string]beginning

type beginning struct{ says, exact time.Time }

// began returns when a part of a pod began, which the pod says in seconds.
func (m *moment) began(part string, says time.Time) time.Time {
	b, ok := m.clock[part]
	if !ok || !b.says.Equal(says) {
		b = beginning{says, says}
		if says.After(m.now) {
			b.exact = m.now
		}
		m.clock[part] = b
	}
	return b.exact
}

// begins notes that a part of the pod began, and returns what the pod says of that.
func (m *moment) begins(part string, at time.Time) metav1.Time {
	b := beginning{at.Truncate(time.Second), at}
	m.clock[part] = b
	return metav1.NewTime(b.says)
}

// deleted returns when the pod was deleted, as exactly as is known: its deletion timestamp, which
// is that time plus the grace period, is in seconds.
func (m *moment) deleted(grace time.Duration) time.Time {
	const part = "the deletion"
	says := m.pod.DeletionTimestamp.Time
	if !m.clock[part].says.Equal(says) {
		m.clock[part] = beginning{says, m.now}
	}
	seen, latest := m.clock[part].exact, says.Add(time.Second-grace)
	if seen.After(latest) {
		return latest
	}
	return seen
}

func (n *Nodes) momentOf(node *node, p *corev1.Pod) *moment {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := &moment{
		nodes: n, node: node, pod: n.Behaviors.Of(p), now: time.Now(), clock: n.clocks[p.UID],
		hostIP: node.address,
	}
	if m.clock == nil {
		m.clock = clock{}
		if node.pods[keyOf(p)] == p.UID { // otherwise it is gone, and nobody would forget the clock
			n.clocks[p.UID] = m.clock
		}
	}
	p.Status.DeepCopyInto(&m.status)
	return m
}

// address returns the address of a pod. It is invalid if none is left, or if the pod is gone.
func (n *Nodes) address(node *node, p *corev1.Pod) netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	if node.pods[keyOf(p)] != p.UID {
		return netip.Addr{}
	}
	addr := node.ips.get(p.UID)
	if !addr.IsValid() && n.reserveNext(node) { // its maker may have left it room for a million pods
		addr = node.ips.get(p.UID)
	}
	return addr
}

// release frees what a pod that has ended had of its node.
func (n *Nodes) release(node *node, p *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.free(node, p)
	delete(n.clocks, p.UID)
}
