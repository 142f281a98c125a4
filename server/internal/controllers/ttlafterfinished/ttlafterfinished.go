// Package ttlafterfinished has the controller that deletes Jobs some time after they have finished.
package ttlafterfinished

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchinformers "k8s.io/client-go/informers/batch/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the controller in kube-controller-manager.
const Name = "ttl-after-finished-controller"

// Controller deletes finished Jobs.
type Controller struct {
	client   kubernetes.Interface
	informer batchinformers.JobInformer
}

// New returns a controller. Whoever made the informer starts it.
func New(client kubernetes.Interface, informer batchinformers.JobInformer) *Controller {
	informer.Informer()
	return &Controller{client, informer}
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	queue := loop.New(Name)
	var handlers loop.Handlers
	defer handlers.Remove()
	if err := handlers.Add(c.informer.Informer(), loop.OnChange(func(_, job *batchv1.Job) {
		if job != nil && due(job) != nil {
			queue.Soon(cache.MetaObjectToName(job).String())
		}
	})); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return queue.Run(ctx, 1, queue.Exactly(c.sync), handlers.Synced()...)
}

// due returns when a Job is to be deleted, or nil if it is not. A Job of which nobody has said when
// it finished is kept.
func due(job *batchv1.Job) *time.Time {
	if job.Spec.TTLSecondsAfterFinished == nil || job.DeletionTimestamp != nil {
		return nil
	}
	for _, c := range job.Status.Conditions {
		if c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() &&
			(c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return new(c.LastTransitionTime.Add(
				time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second))
		}
	}
	return nil
}

func (c *Controller) sync(ctx context.Context, key string) (time.Duration, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return 0, err
	}
	job, err := c.informer.Lister().Jobs(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil || due(job) == nil {
		return 0, err
	}
	if wait := time.Until(*due(job)); wait > 0 {
		return wait, nil
	}
	// The time may have been extended since.
	if job, err = c.client.BatchV1().Jobs(name.Namespace).Get(ctx, name.Name,
		metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if due(job) == nil {
		return 0, nil
	}
	if wait := time.Until(*due(job)); wait > 0 {
		return wait, nil
	}
	err = c.client.BatchV1().Jobs(name.Namespace).Delete(ctx, name.Name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationForeground),
		Preconditions: &metav1.Preconditions{
			UID: &job.UID, ResourceVersion: &job.ResourceVersion,
		},
	})
	return 0, loop.IgnoreChanged(err)
}
