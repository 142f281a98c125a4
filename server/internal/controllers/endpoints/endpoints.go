// Package endpoints has the controller that keeps the Endpoints of Services that select pods. The
// API is deprecated, but older clients still read it.
package endpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/endpointslice/util"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/servicequeue"
)

const (
	// Name is the name of the controller in kube-controller-manager.
	Name = "endpoints-controller"
	// Component is the component of the controller's events.
	Component = "endpoint-controller"
	// managedByLabel says who keeps an object, since Kubernetes 1.33.
	managedByLabel = "endpoints.kubernetes.io/managed-by"
	managedBy      = "endpoint-controller"
	// workers is the number of Services that are looked at concurrently, as in
	// kube-controller-manager.
	workers = 5
	// capacity is the most addresses in an object.
	capacity  = 1000
	truncated = "truncated"
)

// Controller keeps the Endpoints of Services.
type Controller struct {
	loop.Dependencies
}

// New returns a controller. Whoever made the informers starts them.
func New(d loop.Dependencies) *Controller {
	d.Informers.Core().V1().Services().Informer()
	d.Informers.Core().V1().Pods().Informer()
	d.Informers.Core().V1().Endpoints().Informer()
	return &Controller{d}
}

// run is the state of one call of Run.
type run struct {
	*Controller
	queue    *servicequeue.Queue
	triggers *util.TriggerTimeTracker

	mu sync.Mutex
	// stale has the version of the Endpoints of a Service that the last write replaced. Until the
	// informer has another version, it is behind.
	stale map[string]string
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	core := c.Informers.Core().V1()
	r := &run{
		Controller: c, queue: servicequeue.New(Name, core.Services().Lister()),
		triggers: util.NewTriggerTimeTracker(), stale: map[string]string{},
	}
	var handlers loop.Handlers
	defer handlers.Remove()
	if err := errors.Join(
		handlers.Add(core.Services().Informer(), loop.OnChange(r.serviceChanged)),
		handlers.Add(core.Pods().Informer(), loop.OnChange(r.queue.PodChanged)),
		handlers.Add(core.Endpoints().Informer(), loop.OnChange(r.endpointsChanged)),
	); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return r.queue.Run(ctx, workers, r.sync, handlers.Synced()...)
}

func (r *run) serviceChanged(old, service *corev1.Service) {
	if service == nil {
		service = old
	}
	r.queue.Soon(cache.MetaObjectToName(service).String())
}

// endpointsChanged adds the Service of Endpoints. There may be none yet: Endpoints that somebody
// made for a Service to come stay.
func (r *run) endpointsChanged(old, endpoints *corev1.Endpoints) {
	if endpoints == nil {
		endpoints = old
	}
	_, err := r.Informers.Core().V1().Services().Lister().Services(endpoints.Namespace).
		Get(endpoints.Name)
	if err == nil || endpoints.Labels[managedByLabel] == managedBy {
		r.queue.Add(cache.MetaObjectToName(endpoints).String())
	}
}

func (r *run) sync(ctx context.Context, key string) (time.Duration, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return 0, err
	}
	core := r.Informers.Core().V1()
	s, err := core.Services().Lister().Services(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		r.triggers.DeleteService(name.Namespace, name.Name)
		r.queue.Gone(key)
		r.setStale(name, "")
		return 0, r.delete(ctx, name)
	}
	if err != nil || s.Spec.Type == corev1.ServiceTypeExternalName || s.Spec.Selector == nil {
		return 0, err
	}
	current, err := core.Endpoints().Lister().Endpoints(name.Namespace).Get(name.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	if current != nil && r.isStale(name, current) {
		return servicequeue.Pause, nil
	}
	if wait := r.queue.Wait(key); wait > 0 {
		return wait, nil
	}
	pods, err := core.Pods().Lister().Pods(name.Namespace).
		List(labels.Set(s.Spec.Selector).AsSelectorPreValidated())
	if err != nil {
		return 0, err
	}
	return 0, r.write(ctx, s, pods, current)
}

func (r *run) isStale(name cache.ObjectName, e *corev1.Endpoints) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stale[name.String()] == e.ResourceVersion
}

func (r *run) setStale(name cache.ObjectName, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if version == "" {
		delete(r.stale, name.String())
	} else {
		r.stale[name.String()] = version
	}
}

// delete deletes the Endpoints of a Service that is gone, unless they are used for leader election.
func (r *run) delete(ctx context.Context, name cache.ObjectName) error {
	e, err := r.Informers.Core().V1().Endpoints().Lister().Endpoints(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, leader := e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]; leader {
		return nil
	}
	err = r.Client.CoreV1().Endpoints(name.Namespace).Delete(ctx, name.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(e.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// write creates or updates the Endpoints of a service unless they are up to date. Current is nil if
// there are none.
func (r *run) write(
	ctx context.Context, s *corev1.Service, pods []*corev1.Pod, current *corev1.Endpoints,
) error {
	subsets := subsetsOf(s, pods)
	trigger := r.triggers.ComputeEndpointLastChangeTriggerTime(s.Namespace, s, pods)
	cut := truncate(subsets)
	wantedLabels := maps.Clone(s.Labels)
	if wantedLabels == nil {
		wantedLabels = map[string]string{}
	}
	delete(wantedLabels, corev1.IsHeadlessService)
	if s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.ClusterIP == "" {
		wantedLabels[corev1.IsHeadlessService] = ""
	}
	wantedLabels[managedByLabel] = managedBy
	wanted := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
	}
	if current != nil {
		over := current.Annotations[corev1.EndpointsOverCapacity] == truncated
		if equality.Semantic.DeepEqual(current.Subsets, subsets) &&
			maps.Equal(current.Labels, wantedLabels) && over == cut {
			return nil
		}
		wanted = current.DeepCopy()
	}
	wanted.Subsets, wanted.Labels = subsets, wantedLabels
	annotate(wanted, corev1.EndpointsLastChangeTriggerTime, trigger.UTC().Format(time.RFC3339Nano),
		!trigger.IsZero())
	annotate(wanted, corev1.EndpointsOverCapacity, truncated, cut)
	endpoints := r.Client.CoreV1().Endpoints(s.Namespace)
	if current == nil {
		if s.DeletionTimestamp != nil {
			return nil
		}
		_, err := endpoints.Create(ctx, wanted, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the informer will see it
		}
		return r.report(ctx, s, "FailedToCreateEndpoint", "create", err)
	}
	updated, err := endpoints.Update(ctx, wanted, metav1.UpdateOptions{})
	// A webhook may have undone the change.
	if err == nil && updated.ResourceVersion != current.ResourceVersion {
		r.setStale(cache.MetaObjectToName(s), current.ResourceVersion)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the informer will see the change
	}
	return r.report(ctx, s, "FailedToUpdateEndpoint", "update", err)
}

func annotate(e *corev1.Endpoints, key, value string, set bool) {
	if set {
		metav1.SetMetaDataAnnotation(&e.ObjectMeta, key, value)
	} else {
		delete(e.Annotations, key)
	}
}

func (r *run) report(
	ctx context.Context, s *corev1.Service, reason, verb string, err error,
) error {
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		ctx.Err() != nil {
		return nil
	}
	r.Recorder.Eventf(s, corev1.EventTypeWarning, reason, "Failed to %s endpoint %s/%s: %v", verb,
		s.Namespace, s.Name, err)
	return err
}
