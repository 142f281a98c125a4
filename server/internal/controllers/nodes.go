package controllers

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/internal/controllers/nodelifecycle"
	"github.com/kinproc/kinproc/server/internal/controllers/podgc"
	"github.com/kinproc/kinproc/server/internal/controllers/scheduler"
	"github.com/kinproc/kinproc/server/internal/controllers/tainteviction"
)

// nodes returns the scheduler and the control loops of nodes and their pods.
func nodes() []Controller {
	return []Controller{
		{
			Name:     scheduler.Name,
			Purpose:  "assigns pods to nodes",
			workload: true,
			after:    []schema.GroupResource{corev1.Resource("pods")},
			new:      newScheduler,
		},
		{
			Name:     nodelifecycle.Name,
			Purpose:  "taints nodes that are not ready or not heard of any more",
			alias:    "nodelifecycle",
			workload: true,
			after:    []schema.GroupResource{corev1.Resource("nodes")},
			new: func(d Dependencies) (Runner, error) {
				return nodelifecycle.New(d.as("node-controller")), nil
			},
		},
		{
			Name:     tainteviction.Name,
			Purpose:  "deletes pods that do not tolerate the taints of their node",
			alias:    tainteviction.Name, // it is younger than the other names
			workload: true,
			after:    []schema.GroupResource{corev1.Resource("nodes")},
			new: func(d Dependencies) (Runner, error) {
				return tainteviction.New(d.as(tainteviction.Name)), nil
			},
		},
		{
			Name:     podgc.Name,
			Purpose:  "deletes pods whose node is gone, and the oldest of many that have ended",
			alias:    "podgc",
			workload: true,
			after:    []schema.GroupResource{corev1.Resource("pods")},
			new: func(d Dependencies) (Runner, error) {
				return podgc.New(d.Client, d.Informers.Core().V1().Pods(), d.Informers.Core().V1().Nodes()), nil
			},
		},
	}
}

// newScheduler returns the scheduler. It is kube-scheduler that manages the fields it sets, and not
// kube-controller-manager.
func newScheduler(d Dependencies) (Runner, error) {
	config := rest.CopyConfig(d.Config)
	_, version, _ := strings.Cut(config.UserAgent, "/")
	config.UserAgent = scheduler.Name + "/" + version
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return scheduler.New(scheduler.Dependencies{Client: client, Informers: d.Informers}), nil
}
