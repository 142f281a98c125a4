// Package ttlafterfinished has the controller that deletes Jobs some time after they have finished.
package ttlafterfinished

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "ttl-after-finished-controller"

// Loop is the loop that deletes finished Jobs.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "ttl-after-finished",
		Purpose:  "deletes Jobs some time after they have finished",
		Workload: true, Begin: begin,
		After: []schema.GroupResource{batchv1.Resource("jobs")},
	}
}

type controller struct {
	*loop.Controller
	jobs cache.SharedIndexInformer
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{l, l.Informer(&batchv1.Job{})}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.On(c.jobs, func(_, job *batchv1.Job) {
			if job != nil && due(job) != nil {
				c.Enqueue(loop.Key(job))
			}
		}),
	}}
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

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	job := loop.Get[batchv1.Job](c.jobs, key)
	if job == nil || due(job) == nil {
		return 0, nil
	}
	if wait := time.Until(*due(job)); wait > 0 {
		return wait, nil
	}
	// The time may have been extended since.
	jobs := c.Client.BatchV1().Jobs(job.Namespace)
	job, err := jobs.Get(ctx, job.Name, metav1.GetOptions{})
	if err != nil || due(job) == nil {
		return 0, loop.IgnoreNotFound(err)
	}
	if wait := time.Until(*due(job)); wait > 0 {
		return wait, nil
	}
	err = jobs.Delete(ctx, job.Name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationForeground),
		Preconditions: &metav1.Preconditions{
			UID: &job.UID, ResourceVersion: &job.ResourceVersion,
		},
	})
	return 0, loop.IgnoreChanged(err)
}
