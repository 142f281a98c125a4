// Package endpointslicemirroring has the controller that mirrors Endpoints that someone made for a
// Service without a selector to EndpointSlices, which is what most clients read.
package endpointslicemirroring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/endpointslice/util"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// Name is the name of the controller in kube-controller-manager.
	Name = "endpointslice-mirroring-controller"
	// Component is the component of the controller's events.
	Component = "endpoint-slice-mirroring-controller"
	// managedBy is the value of the label that tells the controller's slices from those of others.
	managedBy = "endpointslicemirroring-controller.k8s.io"
)

// Controller mirrors Endpoints.
type Controller struct {
	loop.Dependencies
}

// New returns a controller. Whoever made the informers starts them.
func New(d loop.Dependencies) *Controller {
	d.Informers.Core().V1().Services().Informer()
	d.Informers.Core().V1().Endpoints().Informer()
	d.Informers.Discovery().V1().EndpointSlices().Informer()
	return &Controller{d}
}

// run is the state of one call of Run.
type run struct {
	*Controller
	tracker *util.EndpointSliceTracker // what the informer of slices has not seen yet
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{c, util.NewEndpointSliceTracker()}
	queue := loop.New(Name)
	var handlers loop.Handlers
	defer handlers.Remove()
	core := c.Informers.Core().V1()
	add := func(obj metav1.Object) { queue.Soon(cache.MetaObjectToName(obj).String()) }
	if err := errors.Join(
		handlers.Add(core.Services().Informer(), loop.OnChange(func(old, s *corev1.Service) {
			switch {
			case old == nil:
				add(s)
			case s == nil || (old.Spec.Selector == nil) != (s.Spec.Selector == nil):
				add(old)
			}
		})),
		handlers.Add(core.Endpoints().Informer(), loop.OnChange(func(old, e *corev1.Endpoints) {
			if e == nil {
				e = old
			}
			add(e)
		})),
		handlers.Add(c.Informers.Discovery().V1().EndpointSlices().Informer(), loop.OnChange(
			func(old, s *discoveryv1.EndpointSlice) {
				if s == nil {
					r.tracker.HandleDeletion(old)
				}
				for _, s := range []*discoveryv1.EndpointSlice{old, s} {
					if s != nil && s.Labels[discoveryv1.LabelManagedBy] == managedBy {
						queue.Add(cache.NewObjectName(s.Namespace,
							s.Labels[discoveryv1.LabelServiceName]).String())
					}
				}
			})),
	); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return queue.Run(ctx, 1, r.sync, handlers.Synced()...)
}

// mirrored reports whether Endpoints are to be mirrored.
func mirrored(e *corev1.Endpoints) bool {
	_, leader := e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]
	return !leader && e.Labels[discoveryv1.LabelSkipMirror] != "true"
}

func (r *run) sync(ctx context.Context, key string) (time.Duration, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return 0, err
	}
	core := r.Informers.Core().V1()
	service, err := core.Services().Lister().Services(name.Namespace).Get(name.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	endpoints, err := core.Endpoints().Lister().Endpoints(name.Namespace).Get(name.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	existing, err := r.Informers.Discovery().V1().EndpointSlices().Lister().
		EndpointSlices(name.Namespace).List(labels.SelectorFromSet(labels.Set{
		discoveryv1.LabelServiceName: name.Name, discoveryv1.LabelManagedBy: managedBy,
	}))
	if err != nil {
		return 0, err
	}
	if service == nil || service.Spec.Selector != nil || endpoints == nil || !mirrored(endpoints) {
		err := r.delete(ctx, existing)
		if service == nil && endpoints == nil && len(existing) == 0 {
			r.tracker.DeleteService(name.Namespace, name.Name)
		}
		return 0, err
	}
	if r.tracker.StaleSlices(service, existing) {
		return time.Second, nil
	}
	return 0, r.reconcile(ctx, endpoints, existing)
}

// reconcile makes the slices what the endpoints say. A slice that is not wanted any more becomes
// one that is missing, rather than being deleted, so that readers never see too few endpoints.
func (r *run) reconcile(
	ctx context.Context, endpoints *corev1.Endpoints, existing []*discoveryv1.EndpointSlice,
) error {
	wanted, problems := slicesOf(endpoints)
	for _, p := range problems {
		r.Recorder.Event(endpoints, corev1.EventTypeWarning, p.reason, p.message)
	}
	client := r.Client.DiscoveryV1().EndpointSlices(endpoints.Namespace)
	existing = slices.Clone(existing)
	var missing []*discoveryv1.EndpointSlice
	for _, w := range wanted {
		i := slices.IndexFunc(existing, func(s *discoveryv1.EndpointSlice) bool {
			return s.AddressType == w.AddressType && equality.Semantic.DeepEqual(s.Ports, w.Ports) &&
				metav1.IsControlledBy(s, endpoints) && s.DeletionTimestamp == nil
		})
		if i < 0 {
			missing = append(missing, w)
			continue
		}
		if err := r.update(ctx, existing[i], w); err != nil {
			return err
		}
		existing = slices.Delete(existing, i, i+1)
	}
	for _, w := range missing {
		if i := slices.IndexFunc(existing, func(s *discoveryv1.EndpointSlice) bool {
			return s.AddressType == w.AddressType && metav1.IsControlledBy(s, endpoints) &&
				s.DeletionTimestamp == nil
		}); i >= 0 {
			if err := r.update(ctx, existing[i], w); err != nil {
				return err
			}
			existing = slices.Delete(existing, i, i+1)
			continue
		}
		if endpoints.DeletionTimestamp != nil {
			continue
		}
		made, err := client.Create(ctx, w, metav1.CreateOptions{})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("create EndpointSlice for Endpoints %s/%s: %w", endpoints.Namespace,
				endpoints.Name, err)
		}
		r.tracker.Update(made)
	}
	return r.delete(ctx, existing)
}

func (r *run) update(ctx context.Context, slice, wanted *discoveryv1.EndpointSlice) error {
	if equality.Semantic.DeepEqual(slice.Endpoints, wanted.Endpoints) &&
		equality.Semantic.DeepEqual(slice.Ports, wanted.Ports) &&
		maps.Equal(slice.Labels, wanted.Labels) && maps.Equal(slice.Annotations, wanted.Annotations) {
		return nil
	}
	slice = slice.DeepCopy()
	slice.Endpoints, slice.Ports = wanted.Endpoints, wanted.Ports
	slice.Labels, slice.Annotations = wanted.Labels, wanted.Annotations
	made, err := r.Client.DiscoveryV1().EndpointSlices(slice.Namespace).Update(ctx, slice,
		metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update EndpointSlice %s/%s: %w", slice.Namespace, slice.Name, err)
	}
	r.tracker.Update(made)
	return nil
}

func (r *run) delete(ctx context.Context, list []*discoveryv1.EndpointSlice) error {
	for _, slice := range list {
		if slice.DeletionTimestamp != nil {
			continue
		}
		err := r.Client.DiscoveryV1().EndpointSlices(slice.Namespace).Delete(ctx, slice.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(slice.UID))})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("delete EndpointSlice %s/%s: %w", slice.Namespace, slice.Name, err)
		}
		r.tracker.ExpectDeletion(slice)
	}
	return nil
}
