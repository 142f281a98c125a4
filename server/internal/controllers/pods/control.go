// Package pods is what the controllers of workloads do with pods: finding those of an owner,
// creating and deleting many of them, and telling how far they are.
package pods

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
)

// Reasons of the events of owners.
const (
	SuccessfulCreate = "SuccessfulCreate"
	FailedCreate     = "FailedCreate"
	SuccessfulDelete = "SuccessfulDelete"
	FailedDelete     = "FailedDelete"
)

// parallel is the number of requests that one owner makes at once. More do not make a server of a
// few cores faster.
const parallel = 16

// longest is how long the requests of one pass may take. If they take longer, their events cause
// the next pass, and other owners get their turn before.
const longest = 500 * time.Millisecond

// Control creates and deletes the pods of one kind of owners. It remembers what the informer has
// not seen yet.
type Control struct {
	client       kubernetes.Interface
	recorder     record.EventRecorder
	informer     cache.SharedIndexInformer
	expectations expectations
	crowds       crowds
}

// NewControl returns a control for a loop.
func NewControl(c *loop.Controller) *Control {
	return &Control{
		client: c.Client, recorder: c.Recorder, informer: c.Informer(&corev1.Pod{}),
		expectations: expectations{owners: map[types.UID]writes{}},
	}
}

// Watch returns the watch of pods of a loop. It calls the functions of h, of which it sets Seen.
func (c *Control) Watch(h ownerrefs.Handler[*corev1.Pod]) loop.Watch {
	h.Seen = func(owner types.UID, pod *corev1.Pod, gone bool) {
		c.expectations.seen(owner, pod.UID, gone || pod.DeletionTimestamp != nil)
	}
	return loop.Watch{Informer: c.informer, Handler: &h, Indexers: ownerrefs.Indexers()}
}

// Satisfied reports whether the informer has seen all pods that were created and deleted for an
// owner. Before, nobody knows how many pods are missing. When the informer sees one, the owner's
// handler is called.
func (c *Control) Satisfied(owner types.UID) bool { return c.expectations.satisfied(owner) }

// Forget forgets an owner that is gone.
func (c *Control) Forget(owner types.UID) {
	c.expectations.forget(owner)
	c.crowds.forget(owner)
}

// Get returns the pod with a key, or nil if the informer has none.
func (c *Control) Get(key string) *corev1.Pod { return loop.Get[corev1.Pod](c.informer, key) }

// Owned returns the pods that have the owner's controller reference.
func (c *Control) Owned(owner metav1.Object) ([]*corev1.Pod, error) {
	return ownerrefs.Owned[*corev1.Pod](c.informer.GetIndexer(), owner.GetUID())
}

// Claim returns the owner's pods, as [ownerrefs.Claim] does.
func (c *Control) Claim(
	ctx context.Context, owner ownerrefs.Owner, finalizers ...string,
) ([]*corev1.Pod, error) {
	return ownerrefs.Claim[*corev1.Pod](ctx, c.informer.GetIndexer(), owner,
		func(ctx context.Context, name string, patch []byte) error {
			_, err := c.client.CoreV1().Pods(owner.GetNamespace()).Patch(ctx, name,
				types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return err
		}, finalizers...)
}

// Create creates up to n pods, as [SlowStart] does. It returns how many were created.
func (c *Control) Create(
	ctx context.Context, owner ownerrefs.Owner, n int, pod func(i int) *corev1.Pod,
) (int, error) {
	return SlowStart(n, func(i int) error { return c.CreateOne(ctx, owner, pod(i)) })
}

// SlowStart calls do up to n times, once at first and then more and more at once: if the first
// request is refused, so would be the others. It ends when a call fails, or when the calls have
// taken too long for one pass. It returns how many succeeded.
func SlowStart(n int, do func(i int) error) (int, error) {
	var succeeded int
	end := time.Now().Add(longest)
	for begin, batch := 0, 1; begin < n; batch *= 2 {
		size := min(batch, n-begin)
		done, err := each(size, end, func(i int) error { return do(begin + i) })
		succeeded += done
		if err != nil || done < size {
			return succeeded, err
		}
		begin += size
	}
	return succeeded, nil
}

// CreateOne creates a pod.
func (c *Control) CreateOne(ctx context.Context, owner ownerrefs.Owner, pod *corev1.Pod) error {
	made, err := c.Post(ctx, owner, pod)
	switch {
	case err == nil:
		c.recorder.Eventf(owner.Object, corev1.EventTypeNormal, SuccessfulCreate, "Created pod: %v",
			made.Name)
	case !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) && ctx.Err() == nil:
		c.recorder.Eventf(owner.Object, corev1.EventTypeWarning, FailedCreate, "Error creating: %v", err)
	}
	return err
}

// Post creates a pod without an event.
func (c *Control) Post(
	ctx context.Context, owner ownerrefs.Owner, pod *corev1.Pod,
) (*corev1.Pod, error) {
	made, err := c.client.CoreV1().Pods(owner.GetNamespace()).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	c.expectations.created(owner.GetUID(), made.UID)
	// The informer may have seen the pod before it was expected.
	if found, ok, _ := c.informer.GetIndexer().GetByKey(cache.MetaObjectToName(made).String()); ok &&
		found.(*corev1.Pod).UID == made.UID {
		c.expectations.seen(owner.GetUID(), made.UID, false)
	}
	return made, nil
}

// Delete deletes pods, as many as one pass has time for. Those that are deleted cause the next one.
func (c *Control) Delete(ctx context.Context, owner ownerrefs.Owner, pods []*corev1.Pod) error {
	_, err := each(len(pods), time.Now().Add(longest), func(i int) error {
		return c.DeleteOne(ctx, owner, pods[i])
	})
	return err
}

// DeleteOne deletes a pod, if it still exists.
func (c *Control) DeleteOne(ctx context.Context, owner ownerrefs.Owner, pod *corev1.Pod) error {
	found, err := c.Remove(ctx, owner, pod)
	switch {
	case found && err == nil:
		c.recorder.Eventf(owner.Object, corev1.EventTypeNormal, SuccessfulDelete, "Deleted pod: %v",
			pod.Name)
	case err != nil && ctx.Err() == nil:
		c.recorder.Eventf(owner.Object, corev1.EventTypeWarning, FailedDelete, "Error deleting: %v", err)
	}
	return err
}

// Remove deletes a pod without an event. Found is false if the pod no longer exists.
func (c *Control) Remove(
	ctx context.Context, owner ownerrefs.Owner, pod *corev1.Pod,
) (found bool, err error) {
	c.expectations.deleted(owner.GetUID(), pod.UID)
	err = c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err == nil {
		return true, nil
	}
	c.expectations.seen(owner.GetUID(), pod.UID, true)
	// A conflict: another pod has the name now.
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	return true, fmt.Errorf("delete pod %s: %w", pod.Name, err)
}

// each calls do n times, several at once, or less often if it takes until end. It returns how many
// calls succeeded.
func each(n int, end time.Time, do func(i int) error) (int, error) {
	if n == 1 {
		if err := do(0); err != nil {
			return 0, err
		}
		return 1, nil
	}
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		next    int
		errs    []error
	)
	for range min(parallel, n) {
		running.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			for next < n && (next == 0 || time.Now().Before(end)) {
				i := next
				next++
				mu.Unlock()
				err := do(i)
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
				}
			}
		})
	}
	running.Wait()
	if len(errs) > 0 {
		// The others fail for the same reason most of the time.
		return next - len(errs), errs[0]
	}
	return next, nil
}
