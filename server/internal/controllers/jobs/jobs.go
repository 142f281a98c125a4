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
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

const (
	// Name is the name of the controller in kube-controller-manager, and the component of its events.
	Name = "job-controller"
	// workers is the number of Jobs that are looked at concurrently.
	workers = 4
	// pause is the time between two looks at a Job whose pods change all the time.
	pause = 10 * time.Millisecond
	// podPrefix begins the keys of pods that have lost their Job but not the finalizer.
	podPrefix = "pod:"
)

// Controller runs Jobs.
type Controller struct {
	loop.Dependencies
	pods *pods.Control
}

// New returns a controller. Whoever made the informers starts them.
func New(d loop.Dependencies) (*Controller, error) {
	d.Informers.Batch().V1().Jobs().Informer()
	control, err := pods.NewControl(d)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	return &Controller{d, control}, nil
}

// run is the state of one call of Run.
type run struct {
	*Controller
	queue *loop.Queue

	mu   sync.Mutex
	jobs map[string]*known
}

// known is what the controller remembers of a Job. One worker at a time has it, but mu of run is
// held for changes of released.
type known struct {
	uid     types.UID
	synced  time.Time
	written *batchv1.Job // the last version, which the informer may not have seen
	backoff backoff
	// released are the pods that have lost their finalizer, until the informer has seen it.
	released map[types.UID]bool
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, queue: loop.New(Name), jobs: map[string]*known{}}
	var handlers loop.Handlers
	defer handlers.Remove()
	if err := errors.Join(
		handlers.Add(c.Informers.Batch().V1().Jobs().Informer(), loop.OnChange(r.jobChanged)),
		c.pods.Handle(&handlers, ownerrefs.Handler[*corev1.Pod]{
			Kind:    batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(),
			Changed: r.podChanged,
			Orphan:  r.orphan,
		}),
	); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return r.queue.Run(ctx, workers, r.sync, handlers.Synced()...)
}

func (r *run) jobChanged(old, job *batchv1.Job) {
	if job != nil {
		if old == nil || old.ResourceVersion != job.ResourceVersion {
			r.queue.Soon(cache.MetaObjectToName(job).String())
		}
		return
	}
	r.queue.Soon(cache.MetaObjectToName(old).String())
	r.pods.Forget(old.UID)
	owned, err := r.pods.Owned(old)
	if err != nil {
		return // a cache does not fail
	}
	for _, pod := range owned {
		r.queue.Add(podPrefix + cache.MetaObjectToName(pod).String())
	}
}

func (r *run) podChanged(key string, old, pod *corev1.Pod) {
	for _, p := range []*corev1.Pod{old, pod} {
		if p != nil && (pod == nil || !tracked(p)) {
			r.mu.Lock()
			if k := r.jobs[key]; k != nil {
				delete(k.released, p.UID)
			}
			r.mu.Unlock()
		}
	}
	r.queue.Soon(key)
	if pod != nil && tracked(pod) && (pods.Finished(pod) || pod.DeletionTimestamp != nil) &&
		r.jobOf(pod) == nil {
		r.queue.Add(podPrefix + cache.MetaObjectToName(pod).String())
	}
}

func (r *run) orphan(pod *corev1.Pod) {
	if tracked(pod) {
		r.queue.Add(podPrefix + cache.MetaObjectToName(pod).String())
	}
	ownerrefs.Matching(r.Informers.Batch().V1().Jobs().Informer().GetIndexer(), pod,
		func(job *batchv1.Job) *metav1.LabelSelector { return job.Spec.Selector }, r.queue.Add)
}

// jobOf returns the Job of a pod, or nil if it is gone.
func (r *run) jobOf(pod *corev1.Pod) *batchv1.Job {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || ref.Kind != "Job" {
		return nil
	}
	job, err := r.Informers.Batch().V1().Jobs().Lister().Jobs(pod.Namespace).Get(ref.Name)
	if err != nil || job.UID != ref.UID {
		return nil
	}
	return job
}

// tracked reports whether a pod has not been counted.
func tracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

func (r *run) sync(ctx context.Context, key string) (time.Duration, error) {
	if pod, ok := strings.CutPrefix(key, podPrefix); ok {
		return 0, r.syncPod(ctx, pod)
	}
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return 0, err
	}
	job, err := r.Informers.Batch().V1().Jobs().Lister().Jobs(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.jobs, key)
		return 0, nil
	}
	if err != nil || ptr.Deref(job.Spec.ManagedBy, batchv1.JobControllerName) !=
		batchv1.JobControllerName {
		return 0, err
	}
	k := r.known(key, job.UID)
	if k.written != nil {
		if n, err := resourceversion.CompareResourceVersion(job.ResourceVersion,
			k.written.ResourceVersion); err == nil && n < 0 {
			job = k.written
		} else {
			k.written = nil
		}
	}
	if finished(job) {
		return 0, r.releaseAll(ctx, job)
	}
	if wait := time.Until(k.synced.Add(pause)); wait > 0 {
		return wait, nil
	}
	k.synced = time.Now()
	s := &state{run: r, known: k, key: key, job: job.DeepCopy(), now: k.synced}
	err = s.sync(ctx)
	if apierrors.IsConflict(err) {
		s.later(pause) // the informer will see the change
		err = nil
	} else if apierrors.IsNotFound(err) {
		err = nil // the Job is gone
	}
	if s.again > 0 && err == nil {
		r.queue.AddAfter(key, s.again)
	}
	return 0, err
}

func (r *run) known(key string, uid types.UID) *known {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.jobs[key]
	if k == nil || k.uid != uid {
		k = &known{uid: uid, released: map[types.UID]bool{}}
		r.jobs[key] = k
	}
	return k
}

// syncPod takes the finalizer from a pod that no Job will count.
func (r *run) syncPod(ctx context.Context, key string) error {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return err
	}
	pod, err := r.Informers.Core().V1().Pods().Lister().Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !tracked(pod) || r.jobOf(pod) != nil {
		return err
	}
	return r.release(ctx, pod)
}

// releaseAll takes the finalizer from all pods of a Job that has finished.
func (r *run) releaseAll(ctx context.Context, job *batchv1.Job) error {
	owned, err := r.pods.Owned(job)
	if err != nil {
		return err
	}
	for _, pod := range owned {
		if !tracked(pod) {
			continue
		}
		if err := r.release(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// release takes the finalizer from a pod. It is no error if the pod is gone.
func (r *run) release(ctx context.Context, pod *corev1.Pod) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":                                 pod.UID,
		"$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer},
	}})
	if err != nil {
		return err
	}
	_, err = r.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name,
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
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if c.Type == which && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

func finished(job *batchv1.Job) bool {
	return condition(job, batchv1.JobComplete) != nil || condition(job, batchv1.JobFailed) != nil
}
