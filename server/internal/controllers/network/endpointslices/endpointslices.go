// Package endpointslices has the controller that keeps the EndpointSlices of Services that select
// pods. What the slices contain is decided by k8s.io/endpointslice, which kube-controller-manager
// uses as well.
package endpointslices

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/topologycache"
	"k8s.io/endpointslice/util"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/network/servicequeue"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "endpointslice-controller"

const (
	// managedBy is the value of the label that tells the controller's slices from those of others.
	managedBy = "endpointslice-controller.k8s.io"
	// perSlice is the most endpoints in a slice, as in kube-controller-manager.
	perSlice = 100
)

// Loop is the loop of EndpointSlices. Those of default/kubernetes, which always exist, do not start
// it.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "endpointslice", Component: "endpoint-slice-controller",
		Purpose:  "maintains the EndpointSlices of Services that select pods",
		Workload: true, Begin: begin,
		Workers: 5, // as in kube-controller-manager
		After:   []schema.GroupResource{corev1.Resource("services")},
	}
}

type controller struct {
	*servicequeue.Queue
	reconciler *endpointslice.Reconciler
	tracker    *util.EndpointSliceTracker // what the informer of slices has not seen yet
	triggers   *util.TriggerTimeTracker
	topology   *topologycache.TopologyCache
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{
		Queue:   servicequeue.New(l),
		tracker: util.NewEndpointSliceTracker(), triggers: util.NewTriggerTimeTracker(),
		topology: topologycache.NewTopologyCache(),
	}
	nodes := l.Informer(&corev1.Node{})
	c.reconciler = endpointslice.NewReconciler(l.Client,
		corelisters.NewNodeLister(nodes.GetIndexer()), perSlice, c.tracker,
		c.topology, l.Recorder, managedBy,
		endpointslice.WithPreferSameTrafficDistributionEnabled(true))
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.On(c.Services, c.serviceChanged), pods.WithNodes(c.Pods()), loop.On(nodes, c.nodeChanged),
		loop.On(l.Informer(&discoveryv1.EndpointSlice{}), c.sliceChanged),
	}}
}

func (c *controller) serviceChanged(old, service *corev1.Service) {
	if service == nil {
		service = old
	}
	if service.Spec.Selector != nil || old != nil && old.Spec.Selector != nil {
		c.Enqueue(loop.Key(service))
	}
}

// nodeChanged updates the shares of zones. Only these and the names of zones matter here.
func (c *controller) nodeChanged(old, node *corev1.Node) {
	if old != nil && node != nil && zone(old) == zone(node) && ready(old) == ready(node) &&
		old.Status.Allocatable.Cpu().Equal(*node.Status.Allocatable.Cpu()) {
		return
	}
	nodes, err := corelisters.NewNodeLister(c.Indexer(&corev1.Node{})).List(labels.Everything())
	if err != nil {
		return // a cache does not fail
	}
	c.topology.SetNodes(klog.FromContext(c.Context()), nodes)
	for _, key := range c.topology.GetOverloadedServices() {
		c.Add(key)
	}
	if old == nil {
		// Pods on a node that did not exist before may be published now.
		for _, pod := range pods.OnNode(c.Indexer(&corev1.Pod{}), node.Name) {
			c.PodChanged(nil, pod)
		}
	}
}

func zone(node *corev1.Node) string { return node.Labels[corev1.LabelTopologyZone] }

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// sliceChanged has a service reconciled if one of its slices was changed by someone else.
func (c *controller) sliceChanged(old, slice *discoveryv1.EndpointSlice) {
	switch {
	case slice == nil:
		// The tracker does not have the slices that were not written since the start.
		if c.reconciler.ManagedByController(old) &&
			(!c.tracker.Has(old) || !c.tracker.HandleDeletion(old)) {
			c.enqueueOf(old)
		}
	case old == nil:
		if c.reconciler.ManagedByController(slice) && c.tracker.ShouldSync(slice) {
			c.enqueueOf(slice)
		}
	case old.Labels[discoveryv1.LabelServiceName] != slice.Labels[discoveryv1.LabelServiceName]:
		c.enqueueOf(old)
		c.enqueueOf(slice)
	case c.reconciler.ManagedByChanged(old, slice),
		c.reconciler.ManagedByController(slice) && c.tracker.ShouldSync(slice):
		c.enqueueOf(slice)
	}
}

func (c *controller) enqueueOf(slice *discoveryv1.EndpointSlice) {
	if name := slice.Labels[discoveryv1.LabelServiceName]; name != "" {
		c.Add(slice.Namespace + "/" + name)
	}
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return 0, err
	}
	service := loop.Get[corev1.Service](c.Services, key)
	if service == nil {
		c.triggers.DeleteService(name.Namespace, name.Name)
		c.reconciler.DeleteService(name.Namespace, name.Name)
		c.tracker.DeleteService(name.Namespace, name.Name)
		c.Gone(key)
		return 0, nil
	}
	// The selector of a Service without pods of its own may have been removed. Its slices stay, for
	// whoever takes over.
	if service.Spec.Type == corev1.ServiceTypeExternalName || service.Spec.Selector == nil {
		return 0, nil
	}
	if wait := c.Wait(key); wait > 0 {
		return wait, nil
	}
	of, err := c.pods(service)
	if err != nil {
		return 0, err
	}
	existing, err := discoverylisters.NewEndpointSliceLister(c.Indexer(&discoveryv1.EndpointSlice{})).
		EndpointSlices(name.Namespace).List(labels.SelectorFromSet(labels.Set{
		discoveryv1.LabelServiceName: name.Name, discoveryv1.LabelManagedBy: managedBy,
	}))
	if err != nil {
		return 0, err
	}
	existing = slices.DeleteFunc(existing, func(s *discoveryv1.EndpointSlice) bool {
		return s.DeletionTimestamp != nil
	})
	if c.tracker.StaleSlices(service, existing) {
		return 0, loop.Poll(time.Second)
	}
	trigger := c.triggers.ComputeEndpointLastChangeTriggerTime(name.Namespace, service, of)
	err = c.reconciler.Reconcile(klog.FromContext(ctx), service, of, existing, trigger)
	if err != nil && ctx.Err() == nil {
		c.Recorder.Eventf(service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
			"Error updating Endpoint Slices for Service %s: %v", key, err)
	}
	return 0, err
}

// pods returns the pods of a service. Those of a node that does not exist are left out until it
// does, unless even pods that are not ready are published.
func (c *controller) pods(service *corev1.Service) ([]*corev1.Pod, error) {
	pods, err := corelisters.NewPodLister(c.Indexer(&corev1.Pod{})).Pods(service.Namespace).
		List(labels.Set(service.Spec.Selector).AsSelectorPreValidated())
	if err != nil || service.Spec.PublishNotReadyAddresses {
		return pods, err
	}
	return slices.DeleteFunc(pods, func(pod *corev1.Pod) bool {
		_, err := corelisters.NewNodeLister(c.Indexer(&corev1.Node{})).Get(pod.Spec.NodeName)
		return apierrors.IsNotFound(err)
	}), nil
}
