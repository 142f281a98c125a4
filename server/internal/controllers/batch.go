package controllers

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/server/internal/controllers/cronjobs"
	"github.com/kinproc/kinproc/server/internal/controllers/disruption"
	"github.com/kinproc/kinproc/server/internal/controllers/horizontalpodautoscaler"
	"github.com/kinproc/kinproc/server/internal/controllers/jobs"
	"github.com/kinproc/kinproc/server/internal/controllers/ttlafterfinished"
)

// batch returns the control loops of Jobs, and those that scale and limit workloads.
func batch() []Controller {
	return []Controller{
		{
			Name:     jobs.Name,
			Purpose:  "runs the pods of Jobs",
			alias:    "job",
			workload: true,
			after:    []schema.GroupResource{batchv1.Resource("jobs")},
			new: func(d Dependencies) (Runner, error) {
				return jobs.New(d.as(jobs.Name))
			},
		},
		{
			Name:     ttlafterfinished.Name,
			Purpose:  "deletes Jobs some time after they have finished",
			alias:    "ttl-after-finished",
			workload: true,
			after:    []schema.GroupResource{batchv1.Resource("jobs")},
			new: func(d Dependencies) (Runner, error) {
				return ttlafterfinished.New(d.Client, d.Informers.Batch().V1().Jobs()), nil
			},
		},
		{
			Name:     cronjobs.Name,
			Purpose:  "creates Jobs on the schedules of CronJobs",
			alias:    "cronjob",
			workload: true,
			after:    []schema.GroupResource{batchv1.Resource("cronjobs")},
			new: func(d Dependencies) (Runner, error) {
				return cronjobs.New(d.as(cronjobs.Name))
			},
		},
		{
			Name:     disruption.Name,
			Purpose:  "counts how many pods PodDisruptionBudgets allow to evict",
			alias:    "disruption",
			workload: true,
			after:    []schema.GroupResource{policyv1.Resource("poddisruptionbudgets")},
			new: func(d Dependencies) (Runner, error) {
				return disruption.New(d.as("controllermanager")), nil
			},
		},
		{
			Name:     horizontalpodautoscaler.Name,
			Purpose:  "sets the number of replicas of workloads by metrics",
			alias:    "horizontalpodautoscaling",
			workload: true,
			after:    []schema.GroupResource{autoscalingv2.Resource("horizontalpodautoscalers")},
			new: func(d Dependencies) (Runner, error) {
				return horizontalpodautoscaler.New(d.as(horizontalpodautoscaler.Component)), nil
			},
		},
	}
}
