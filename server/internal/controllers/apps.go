package controllers

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/server/internal/controllers/daemonset"
	"github.com/kinproc/kinproc/server/internal/controllers/deployment"
	"github.com/kinproc/kinproc/server/internal/controllers/replicaset"
	"github.com/kinproc/kinproc/server/internal/controllers/statefulset"
)

// apps returns the control loops of ReplicaSets, Deployments, StatefulSets and DaemonSets.
func apps() []Controller {
	return []Controller{
		{
			Name:     replicaset.Name,
			Purpose:  "creates and deletes the pods of ReplicaSets",
			alias:    "replicaset",
			workload: true,
			after:    []schema.GroupResource{appsv1.Resource("replicasets")},
			new: func(d Dependencies) (Runner, error) {
				return replicaset.New(d.as(replicaset.Name))
			},
		},
		{
			Name:     replicaset.ReplicationControllerName,
			Purpose:  "creates and deletes the pods of ReplicationControllers",
			alias:    "replicationcontroller",
			workload: true,
			after:    []schema.GroupResource{corev1.Resource("replicationcontrollers")},
			new: func(d Dependencies) (Runner, error) {
				return replicaset.NewReplicationController(d.as(replicaset.ReplicationControllerComponent))
			},
		},
		{
			Name:     deployment.Name,
			Purpose:  "rolls out Deployments",
			alias:    "deployment",
			workload: true,
			after:    []schema.GroupResource{appsv1.Resource("deployments")},
			new: func(d Dependencies) (Runner, error) {
				return deployment.New(d.as(deployment.Name))
			},
		},
		{
			Name:     statefulset.Name,
			Purpose:  "creates and deletes the pods and claims of StatefulSets",
			alias:    "statefulset",
			workload: true,
			after:    []schema.GroupResource{appsv1.Resource("statefulsets")},
			new: func(d Dependencies) (Runner, error) {
				return statefulset.New(d.as(statefulset.Name))
			},
		},
		{
			Name:     daemonset.Name,
			Purpose:  "keeps a pod of each DaemonSet on the nodes",
			alias:    "daemonset",
			workload: true,
			after:    []schema.GroupResource{appsv1.Resource("daemonsets")},
			new: func(d Dependencies) (Runner, error) {
				return daemonset.New(d.as(daemonset.Name))
			},
		},
	}
}
