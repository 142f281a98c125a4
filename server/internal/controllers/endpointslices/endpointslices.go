// Package endpointslices has the controller that keeps the EndpointSlices of Services that select
// pods. What the slices contain is decided by k8s.io/endpointslice, which kube-controller-manager
// uses as well.
package endpointslices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/topologycache"
	"k8s.io/endpointslice/util"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
	"github.com/kinproc/kinproc/server/internal/controllers/servicequeue"
)

const (
	// Name is the name of the controller in kube-controller-manager.
	Name = "endpointslice-controller"
	// Component is the component of the controller's events.
	Component = "endpoint-slice-controller"
	// managedBy is the value of the label that tells the controller's slices from those of others.
	managedBy = "endpointslice-controller.k8s.io"
	// workers is the number of Services that are looked at concurrently, as in
	// kube-controller-manager.
	workers = 5
	// perSlice is the most endpoints in a slice, as in kube-controller-manager.
	perSlice = 100
)

// Controller keeps the slices of Services.
type Controller struct {
	loop.Dependencies
}

// New returns a controller. Whoever made the informers starts them.
func New(d loop.Dependencies) *Controller {
	d.Informers.Core().V1().Services().Informer()
	d.Informers.Core().V1().Pods().Informer()
	d.Informers.Core().V1().Nodes().Informer()
	d.Informers.Discovery().V1().EndpointSlices().Informer()
	return &Controller{d}
}

// run is the state of one call of Run.
type run struct {
	*Controller
	queue      *servicequeue.Queue
	reconciler *endpointslice.Reconciler
	tracker    *util.EndpointSliceTracker // what the informer of slices has not seen yet
	triggers   *util.TriggerTimeTracker
	topology   *topologycache.TopologyCache
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	core := c.Informers.Core().V1()
	r := &run{
		Controller: c, queue: servicequeue.New(Name, core.Services().Lister()),
		tracker: util.NewEndpointSliceTracker(), triggers: util.NewTriggerTimeTracker(),
		topology: topologycache.NewTopologyCache(),
	}
	r.reconciler = endpointslice.NewReconciler(c.Client, core.Nodes().Lister(), perSlice, r.tracker,
		r.topology, c.Recorder, managedBy,
		endpointslice.WithPreferSameTrafficDistributionEnabled(true))
	var handlers loop.Handlers
	defer handlers.Remove()
	if err := errors.Join(
		handlers.Add(core.Services().Informer(), loop.OnChange(r.serviceChanged)),
		handlers.Add(core.Pods().Informer(), loop.OnChange(r.queue.PodChanged)),
		handlers.Add(core.Nodes().Informer(), loop.OnChange(func(old, node *corev1.Node) {
			r.nodeChanged(ctx, old, node)
		})),
		handlers.Add(c.Informers.Discovery().V1().EndpointSlices().Informer(),
			loop.OnChange(r.sliceChanged)),
	); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return r.queue.Run(ctx, workers, r.sync, handlers.Synced()...)
}

func (r *run) serviceChanged(old, service *corev1.Service) {
	if service == nil {
		service = old
	}
	if service.Spec.Selector != nil || old != nil && old.Spec.Selector != nil {
		r.queue.Soon(cache.MetaObjectToName(service).String())
	}
}

// nodeChanged updates the shares of zones. Only these and the names of zones matter here.
func (r *run) nodeChanged(ctx context.Context, old, node *corev1.Node) {
	if old != nil && node != nil && zone(old) == zone(node) && ready(old) == ready(node) &&
		old.Status.Allocatable.Cpu().Equal(*node.Status.Allocatable.Cpu()) {
		return
	}
	nodes, err := r.Informers.Core().V1().Nodes().Lister().List(labels.Everything())
	if err != nil {
		return // a cache does not fail
	}
	r.topology.SetNodes(klog.FromContext(ctx), nodes)
	for _, key := range r.topology.GetOverloadedServices() {
		r.queue.Add(key)
	}
	if old == nil {
		// Pods on a node that did not exist before may be published now.
		for _, pod := range pods.OnNode(r.Informers.Core().V1().Pods().Lister(), node.Name) {
			r.queue.PodChanged(nil, pod)
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
func (r *run) sliceChanged(old, slice *discoveryv1.EndpointSlice) {
	switch {
	case slice == nil:
		// The tracker does not have the slices that were not written since the start.
		if r.reconciler.ManagedByController(old) &&
			(!r.tracker.Has(old) || !r.tracker.HandleDeletion(old)) {
			r.enqueueOf(old)
		}
	case old == nil:
		if r.reconciler.ManagedByController(slice) && r.tracker.ShouldSync(slice) {
			r.enqueueOf(slice)
		}
	case old.Labels[discoveryv1.LabelServiceName] != slice.Labels[discoveryv1.LabelServiceName]:
		r.enqueueOf(old)
		r.enqueueOf(slice)
	case r.reconciler.ManagedByChanged(old, slice),
		r.reconciler.ManagedByController(slice) && r.tracker.ShouldSync(slice):
		r.enqueueOf(slice)
	}
}

func (r *run) enqueueOf(slice *discoveryv1.EndpointSlice) {
	if name := slice.Labels[discoveryv1.LabelServiceName]; name != "" {
		r.queue.Add(cache.NewObjectName(slice.Namespace, name).String())
	}
}

func (r *run) sync(ctx context.Context, key string) (time.Duration, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return 0, err
	}
	service, err := r.Informers.Core().V1().Services().Lister().Services(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		r.triggers.DeleteService(name.Namespace, name.Name)
		r.reconciler.DeleteService(name.Namespace, name.Name)
		r.tracker.DeleteService(name.Namespace, name.Name)
		r.queue.Gone(key)
		return 0, nil
	}
	// The selector of a Service without pods of its own may have been removed. Its slices stay, for
	// whoever takes over.
	if err != nil || service.Spec.Type == corev1.ServiceTypeExternalName ||
		service.Spec.Selector == nil {
		return 0, err
	}
	if wait := r.queue.Wait(key); wait > 0 {
		return wait, nil
	}
	of, err := r.pods(service)
	if err != nil {
		return 0, err
	}
	existing, err := r.Informers.Discovery().V1().EndpointSlices().Lister().
		EndpointSlices(name.Namespace).List(labels.SelectorFromSet(labels.Set{
		discoveryv1.LabelServiceName: name.Name, discoveryv1.LabelManagedBy: managedBy,
	}))
	if err != nil {
		return 0, err
	}
	existing = slices.DeleteFunc(existing, func(s *discoveryv1.EndpointSlice) bool {
		return s.DeletionTimestamp != nil
	})
	if r.tracker.StaleSlices(service, existing) {
		return time.Second, nil
	}
	trigger := r.triggers.ComputeEndpointLastChangeTriggerTime(name.Namespace, service, of)
	err = r.reconciler.Reconcile(klog.FromContext(ctx), service, of, existing, trigger)
	if err != nil && ctx.Err() == nil {
		r.Recorder.Eventf(service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
			"Error updating Endpoint Slices for Service %s: %v", key, err)
	}
	return 0, err
}

// pods returns the pods of a service. Those of a node that does not exist are left out until it
// does, unless even pods that are not ready are published.
func (r *run) pods(service *corev1.Service) ([]*corev1.Pod, error) {
	core := r.Informers.Core().V1()
	pods, err := core.Pods().Lister().Pods(service.Namespace).
		List(labels.Set(service.Spec.Selector).AsSelectorPreValidated())
	if err != nil || service.Spec.PublishNotReadyAddresses {
		return pods, err
	}
	return slices.DeleteFunc(pods, func(pod *corev1.Pod) bool {
		_, err := core.Nodes().Lister().Get(pod.Spec.NodeName)
		return apierrors.IsNotFound(err)
	}), nil
}
