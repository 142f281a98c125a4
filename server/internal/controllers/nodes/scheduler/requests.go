package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-helpers/storage/volume"

	"github.com/kinproc/kinproc/server/internal/stopper"
)

// bind assigns a pod to the node that it is assumed to be on, once claims are reserved for the pod.
func (r *run) bind(
	ctx context.Context, p *queued, info *pod, node string, reserved []reservation,
) {
	err := r.reserve(ctx, info, reserved)
	if err == nil {
		err = r.bindNode(ctx, info, node)
	}
	if err == nil {
		r.events.send(ctx, info.Pod, corev1.EventTypeNormal, "Scheduled", "Binding",
			fmt.Sprintf("Successfully assigned %s/%s to %s", info.Namespace, info.Name, node))
		return
	}
	r.mu.Lock()
	if on := r.cluster.pods[info.UID]; on != nil && on.assumed {
		r.cluster.remove(info.UID)
		r.queue.happenedToAll(podGone|podPlaced, nil)
	}
	r.mu.Unlock()
	r.failed(ctx, p, info, errors.Join(err, r.unreserve(ctx, reserved)))
}

// bindGrace is how long a binding may go on when the loop ends. It is shorter than the time between
// the end of the loops of a replica that has lost its lease and the beginning of another's.
const bindGrace = 300 * time.Millisecond

// bindNode assigns a pod to a node. If it were cancelled, the pod might be assigned nevertheless,
// after the next scheduler has seen room for another pod.
func (r *run) bindNode(ctx context.Context, info *pod, node string) error {
	ctx, cancel := stopper.Outlive(ctx, bindGrace)
	defer cancel(nil)
	err := r.Client.CoreV1().Pods(info.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: info.Namespace, Name: info.Name, UID: info.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("running Bind plugin %q: %w", "DefaultBinder", err)
	}
	return nil
}

// failed handles an error about a pod. The pod is tried again.
func (r *run) failed(ctx context.Context, p *queued, info *pod, err error) {
	told := false
	// If the pod was changed or deleted, there will be an event. After a conflict about something
	// else, the next attempt sees the change.
	if ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		utilruntime.HandleErrorWithContext(ctx, err, "Scheduling a pod failed, trying again",
			"pod", info.key())
		r.tell(ctx, info, corev1.PodReasonSchedulerError, err.Error(), nil)
		told = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.erred = told
	if p.state == trying {
		p.seen |= podChanged
		r.queue.failed(p, podChanged)
	}
}

// report tells a pod that an attempt has failed, and lets it wait for events that may help.
func (r *run) report(
	ctx context.Context, p *queued, info *pod, f *failure, message string, nominated *string,
) {
	reason := corev1.PodReasonUnschedulable
	if f.err != nil {
		reason = corev1.PodReasonSchedulerError
	}
	r.tell(ctx, info, reason, message, nominated)
	r.mu.Lock()
	defer r.mu.Unlock()
	p.erred = false
	r.queue.failed(p, f.helps)
}

// tell sets the condition PodScheduled and the nominated node of a pod, unless they are so already.
func (r *run) tell(ctx context.Context, p *pod, reason, message string, nominated *string) {
	condition := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: p.Generation, LastTransitionTime: metav1.Now(),
	}
	same := false
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == condition.Status {
			condition.LastTransitionTime = c.LastTransitionTime
			same = c.Reason == reason && c.Message == message &&
				c.ObservedGeneration == condition.ObservedGeneration
		}
	}
	if same && (nominated == nil || *nominated == p.Status.NominatedNodeName) {
		return
	}
	status := map[string]any{"conditions": []corev1.PodCondition{condition}}
	if nominated != nil {
		status["nominatedNodeName"] = *nominated
	}
	if err := r.patchStatus(ctx, p.Pod, status); err != nil {
		return // reported
	}
	if !same {
		r.events.send(ctx, p.Pod, corev1.EventTypeWarning, "FailedScheduling", "Scheduling",
			message)
	}
}

// tellNode sets the node on which a pod is going to be once something else has been done, or none
// if that has failed.
func (r *run) tellNode(ctx context.Context, p *pod, node string) {
	if node == "" || p.Status.NominatedNodeName != node {
		_ = r.patchStatus(ctx, p.Pod, map[string]any{"nominatedNodeName": node}) // reports errors
	}
}

// patchStatus changes the status of a pod. Of an error it is enough to know that there was one.
func (r *run) patchStatus(ctx context.Context, p *corev1.Pod, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID}, "status": status,
	})
	if err == nil {
		_, err = r.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name,
			types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		utilruntime.HandleErrorWithContext(ctx, err, "Writing the status of a pod failed",
			"namespace", p.Namespace, "pod", p.Name)
	}
	return err
}

// evict deletes the victims of a preemption. Without the error, the pod would wait for a victim
// that stays.
func (r *run) evict(ctx context.Context, p *pod, chosen *preemption, cleared []*pod) error {
	for _, other := range cleared {
		// The pod itself reports errors.
		_ = r.patchStatus(ctx, other.Pod, map[string]any{"nominatedNodeName": ""})
	}
	var failed []error
	for _, victim := range chosen.victims {
		if victim.DeletionTimestamp != nil {
			continue
		}
		if err := r.evictOne(ctx, p, victim.Pod, chosen.node.name); err != nil &&
			!apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			failed = append(failed, fmt.Errorf("preempt pod %s: %w", victim.key(), err))
		}
	}
	return errors.Join(failed...)
}

func (r *run) evictOne(ctx context.Context, p *pod, victim *corev1.Pod, node string) error {
	condition := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason:             corev1.PodReasonPreemptionByScheduler,
		Message:            p.Spec.SchedulerName + ": preempting to accommodate a higher priority pod",
		ObservedGeneration: victim.Generation, LastTransitionTime: metav1.Now(),
	}
	if err := r.patchStatus(ctx, victim, map[string]any{
		"conditions": []corev1.PodCondition{condition},
	}); err != nil {
		return err
	}
	err := r.Client.CoreV1().Pods(victim.Namespace).Delete(ctx, victim.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(victim.UID)),
	})
	if err != nil {
		return err
	}
	r.events.send(ctx, victim, corev1.EventTypeNormal, "Preempted", "Preempting",
		fmt.Sprintf("Preempted by pod %s on node %s", p.UID, node))
	return nil
}

// bindVolumes binds the chosen volumes to the claims of a pod and asks for volumes for the other
// claims. The pod is tried again when claims change. It cannot get another node then.
func (r *run) bindVolumes(
	ctx context.Context, p *queued, info *pod, node string, chosen []binding,
) {
	r.tellNode(ctx, info, node)
	for _, b := range chosen {
		if err := r.bindVolume(ctx, b, node); err != nil {
			r.tellNode(ctx, info, "")
			r.failed(ctx, p, info, fmt.Errorf("running PreBind plugin %q: %w", "VolumeBinding", err))
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue.failed(p, volumesChanged|nodeChanged)
}

func (r *run) bindVolume(ctx context.Context, b binding, node string) error {
	if b.volume != nil {
		bound, changed, err := volume.GetBindVolumeToClaim(b.volume, b.claim)
		if err == nil && changed {
			_, err = r.Client.CoreV1().PersistentVolumes().Update(ctx, bound, metav1.UpdateOptions{})
		}
		return err
	}
	if b.claim.Annotations[volume.AnnSelectedNode] == node {
		return nil
	}
	c := b.claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnSelectedNode, node)
	_, err := r.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Update(ctx, c,
		metav1.UpdateOptions{})
	return err
}
