// Package jobs has the controller that runs the pods of Jobs until enough of them have succeeded,
// or too many have failed.
//
// Each pod has a finalizer until the controller has counted it. A pod that ends is first noted as
// uncounted in the status of its Job, then loses the finalizer, and then is counted. So it is
// counted once, whatever happens in between.
package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the loop in kube-controller-manager, and the component of its events.
const Name = "job-controller"

const (
	// pause is the time between two looks at a Job whose pods change all the time.
	pause = 10 * time.Millisecond
	// podPrefix begins the keys of pods that have lost their Job but not the finalizer.
	podPrefix = "pod:"
)

// Loop is the loop of Jobs.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "job", Purpose: "runs the pods of Jobs",
		Workload: true, Workers: 4, Begin: begin,
		After: []schema.GroupResource{batchv1.Resource("jobs")},
	}
}

type controller struct {
	*loop.Controller
	pods     *pods.Control
	informer cache.SharedIndexInformer // of Jobs

	mu   sync.Mutex
	jobs map[string]*known
}

// known is what the controller remembers of a Job. One worker at a time has it, but mu of
// controller is held for changes of released.
type known struct {
	uid     types.UID
	synced  time.Time
	written *batchv1.Job // the last version, which the informer may not have seen
	backoff backoff
	// says and start are when the Job became active: what it says, and by the clock of now.
	says, start time.Time
	// released are the pods that have lost their finalizer, until the informer has seen it.
	released map[types.UID]bool
}

// begun returns when a Job became active that says so.
func (k *known) begun(says, now time.Time) time.Time {
	if !k.says.Equal(says) {
		k.says, k.start = says, loop.Seen(says, now)
	}
	return k.start
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{
		Controller: l, pods: pods.NewControl(l), jobs: map[string]*known{},
		informer: l.Informer(&batchv1.Job{}),
	}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.On(c.informer, c.jobChanged),
		c.pods.Watch(ownerrefs.Handler[*corev1.Pod]{
			Kind:    batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(),
			Changed: c.podChanged,
			Orphan:  c.orphan,
		}),
	}}
}

func (c *controller) jobChanged(old, job *batchv1.Job) {
	if job != nil {
		if old == nil || old.ResourceVersion != job.ResourceVersion {
			c.Enqueue(loop.Key(job))
		}
		return
	}
	c.Enqueue(loop.Key(old))
	c.pods.Forget(old.UID)
	owned, err := c.pods.Owned(old)
	if err != nil {
		return // a cache does not fail
	}
	for _, pod := range owned {
		c.Add(podPrefix + loop.Key(pod))
	}
}

func (c *controller) podChanged(key string, old, pod *corev1.Pod) {
	for _, p := range []*corev1.Pod{old, pod} {
		if p != nil && (pod == nil || !tracked(p)) {
			c.mu.Lock()
			if k := c.jobs[key]; k != nil {
				delete(k.released, p.UID)
			}
			c.mu.Unlock()
		}
	}
	c.Enqueue(key)
	if pod != nil && tracked(pod) && (pods.Finished(pod) || pod.DeletionTimestamp != nil) &&
		c.jobOf(pod) == nil {
		c.Add(podPrefix + loop.Key(pod))
	}
}

func (c *controller) orphan(pod *corev1.Pod) {
	if tracked(pod) {
		c.Add(podPrefix + loop.Key(pod))
	}
	ownerrefs.Matching(c.informer.GetIndexer(), pod,
		func(job *batchv1.Job) *metav1.LabelSelector { return job.Spec.Selector }, c.Add)
}

// jobOf returns the Job of a pod, or nil if it is gone.
func (c *controller) jobOf(pod *corev1.Pod) *batchv1.Job {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || ref.Kind != "Job" {
		return nil
	}
	job := loop.Get[batchv1.Job](c.informer, pod.Namespace+"/"+ref.Name)
	if job == nil || job.UID != ref.UID {
		return nil
	}
	return job
}

// tracked reports whether a pod has not been counted.
func tracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	if pod, ok := strings.CutPrefix(key, podPrefix); ok {
		return 0, c.syncPod(ctx, pod)
	}
	job := loop.Get[batchv1.Job](c.informer, key)
	if job == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.jobs, key)
		return 0, nil
	}
	if ptr.Deref(job.Spec.ManagedBy, batchv1.JobControllerName) != batchv1.JobControllerName {
		return 0, nil
	}
	k := c.known(key, job.UID)
	if k.written != nil {
		if n, err := resourceversion.CompareResourceVersion(job.ResourceVersion,
			k.written.ResourceVersion); err == nil && n < 0 {
			job = k.written
		} else {
			k.written = nil
		}
	}
	if finished(job) {
		return 0, c.releaseAll(ctx, job)
	}
	if wait := time.Until(k.synced.Add(pause)); wait > 0 {
		return wait, nil
	}
	k.synced = time.Now()
	s := &state{controller: c, known: k, key: key, job: job.DeepCopy(), now: k.synced}
	err := s.sync(ctx)
	if apierrors.IsConflict(err) {
		s.later(pause) // the informer will see the change
		err = nil
	} else if apierrors.IsNotFound(err) {
		err = nil // the Job is gone
	}
	return s.again, err
}

func (c *controller) known(key string, uid types.UID) *known {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.jobs[key]
	if k == nil || k.uid != uid {
		k = &known{uid: uid, released: map[types.UID]bool{}}
		c.jobs[key] = k
	}
	return k
}

// syncPod takes the finalizer from a pod that no Job will count.
func (c *controller) syncPod(ctx context.Context, key string) error {
	pod := c.pods.Get(key)
	if pod == nil || !tracked(pod) || c.jobOf(pod) != nil {
		return nil
	}
	return c.release(ctx, pod)
}

// releaseAll takes the finalizer from all pods of a Job that has finished.
func (c *controller) releaseAll(ctx context.Context, job *batchv1.Job) error {
	owned, err := c.pods.Owned(job)
	if err != nil {
		return err
	}
	for _, pod := range owned {
		if !tracked(pod) {
			continue
		}
		if err := c.release(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// release takes the finalizer from a pod, if the pod still exists.
func (c *controller) release(ctx context.Context, pod *corev1.Pod) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":                                 pod.UID,
		"$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer},
	}})
	if err != nil {
		return err
	}
	_, err = c.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name,
		types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	// Conflict or invalid: another pod has the name now.
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove finalizer of pod %s: %w", pod.Name, err)
	}
	return nil
}

// condition returns the condition of a type if its status is true, or nil.
func condition(job *batchv1.Job, which batchv1.JobConditionType) *batchv1.JobCondition {
	c := loop.FindCondition(job.Status.Conditions, which, conditionFields)
	if c == nil || c.Status != corev1.ConditionTrue {
		return nil
	}
	return c
}

func conditionFields(c *batchv1.JobCondition) (
	batchv1.JobConditionType, corev1.ConditionStatus, *metav1.Time,
) {
	return c.Type, c.Status, &c.LastTransitionTime
}

func finished(job *batchv1.Job) bool {
	return condition(job, batchv1.JobComplete) != nil || condition(job, batchv1.JobFailed) != nil
}
