// Package endpointslicemirroring has the controller that mirrors Endpoints that someone made for a
// Service without a selector to EndpointSlices, which is what most clients read.
package endpointslicemirroring

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/endpointslice/util"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "endpointslice-mirroring-controller"

// managedBy is the value of the label that tells the controller's slices from those of others.
const managedBy = "endpointslicemirroring-controller.k8s.io"

// longest is how long the writes of a pass may take. Endpoints can have thousands of sets of ports,
// and those of other Services have to be mirrored in between.
const longest = 500 * time.Millisecond

// pause is the time after such a pass.
const pause = 10 * time.Millisecond

// Loop is the loop that mirrors Endpoints. Those of default/kubernetes, which always exist, do not
// start it.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "endpointslicemirroring", Component: "endpoint-slice-mirroring-controller",
		Purpose:  "mirrors Endpoints of Services without selectors to EndpointSlices",
		Workload: true, Begin: begin,
		After: []schema.GroupResource{corev1.Resource("endpoints")},
	}
}

type controller struct {
	*loop.Controller
	services, endpoints, slices cache.SharedIndexInformer
	tracker                     *util.EndpointSliceTracker // what slices has not seen yet
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{
		Controller: l,
		services:   l.Informer(&corev1.Service{}), endpoints: l.Informer(&corev1.Endpoints{}),
		slices:  l.Informer(&discoveryv1.EndpointSlice{}),
		tracker: util.NewEndpointSliceTracker(),
	}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.On(c.services, func(old, s *corev1.Service) {
			switch {
			case old == nil:
				c.Enqueue(loop.Key(s))
			case s == nil || (old.Spec.Selector == nil) != (s.Spec.Selector == nil):
				c.Enqueue(loop.Key(old))
			}
		}),
		loop.Keys(c.endpoints, c.Enqueue),
		loop.On(c.slices, func(old, s *discoveryv1.EndpointSlice) {
			if s == nil {
				c.tracker.HandleDeletion(old)
			}
			for _, s := range []*discoveryv1.EndpointSlice{old, s} {
				if s != nil && s.Labels[discoveryv1.LabelManagedBy] == managedBy {
					c.Add(s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName])
				}
			}
		}),
	}}
}

// mirrored reports whether Endpoints are to be mirrored.
func mirrored(e *corev1.Endpoints) bool {
	_, leader := e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]
	return !leader && e.Labels[discoveryv1.LabelSkipMirror] != "true"
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return 0, err
	}
	service := loop.Get[corev1.Service](c.services, key)
	endpoints := loop.Get[corev1.Endpoints](c.endpoints, key)
	existing, err := discoverylisters.NewEndpointSliceLister(c.Indexer(&discoveryv1.EndpointSlice{})).
		EndpointSlices(name.Namespace).List(labels.SelectorFromSet(labels.Set{
		discoveryv1.LabelServiceName: name.Name, discoveryv1.LabelManagedBy: managedBy,
	}))
	if err != nil {
		return 0, err
	}
	if service == nil || service.Spec.Selector != nil || endpoints == nil || !mirrored(endpoints) {
		err := c.delete(ctx, existing)
		if service == nil && endpoints == nil && len(existing) == 0 {
			c.tracker.DeleteService(name.Namespace, name.Name)
		}
		return 0, err
	}
	if c.tracker.StaleSlices(service, existing) {
		return 0, loop.Poll(time.Second)
	}
	return c.reconcile(ctx, endpoints, existing)
}

// reconcile makes the slices what the endpoints say. A slice that is not wanted any more becomes
// one that is missing, rather than being deleted, so that readers never see too few endpoints.
func (c *controller) reconcile(
	ctx context.Context, endpoints *corev1.Endpoints, existing []*discoveryv1.EndpointSlice,
) (time.Duration, error) {
	wanted, problems := slicesOf(endpoints)
	for _, p := range problems {
		c.Recorder.Event(endpoints, corev1.EventTypeWarning, p.reason, p.message)
	}
	unwanted := unwantedSlices{byGroup: map[group][]*discoveryv1.EndpointSlice{}}
	for _, s := range existing {
		unwanted.add(s, metav1.IsControlledBy(s, endpoints) && s.DeletionTimestamp == nil)
	}
	end := time.Now().Add(longest)
	var missing []*discoveryv1.EndpointSlice
	for _, w := range wanted {
		if s := unwanted.take(groupOf(w)); s == nil {
			missing = append(missing, w)
		} else if err := c.update(ctx, s, w); err != nil {
			return 0, err
		}
		if time.Now().After(end) {
			return pause, nil
		}
	}
	for _, w := range missing {
		if time.Now().After(end) {
			return pause, nil
		}
		if s := unwanted.takeAny(w.AddressType); s != nil {
			if err := c.update(ctx, s, w); err != nil {
				return 0, err
			}
			continue
		}
		if endpoints.DeletionTimestamp != nil {
			continue
		}
		made, err := c.Client.DiscoveryV1().EndpointSlices(endpoints.Namespace).Create(ctx, w,
			metav1.CreateOptions{})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("create EndpointSlice for Endpoints %s/%s: %w", endpoints.Namespace,
				endpoints.Name, err)
		}
		c.tracker.Update(made)
	}
	return 0, c.delete(ctx, unwanted.all())
}

// unwantedSlices are the slices that exist and for which no use has been found yet.
type unwantedSlices struct {
	byGroup map[group][]*discoveryv1.EndpointSlice
	useless []*discoveryv1.EndpointSlice // that cannot become others
}

func (u *unwantedSlices) add(s *discoveryv1.EndpointSlice, useful bool) {
	if g := groupOf(s); useful {
		u.byGroup[g] = append(u.byGroup[g], s)
	} else {
		u.useless = append(u.useless, s)
	}
}

// take removes a slice of a group and returns it, or nil if there is none.
func (u *unwantedSlices) take(g group) *discoveryv1.EndpointSlice {
	list := u.byGroup[g]
	if len(list) == 0 {
		return nil
	}
	if u.byGroup[g] = list[1:]; len(list) == 1 {
		delete(u.byGroup, g)
	}
	return list[0]
}

// takeAny removes a slice of a family and returns it, or nil if there is none.
func (u *unwantedSlices) takeAny(family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	for g := range u.byGroup {
		if g.addressType == family {
			return u.take(g)
		}
	}
	return nil
}

func (u *unwantedSlices) all() []*discoveryv1.EndpointSlice {
	list := u.useless
	for _, more := range u.byGroup {
		list = append(list, more...)
	}
	return list
}

func (c *controller) update(ctx context.Context, slice, wanted *discoveryv1.EndpointSlice) error {
	if equality.Semantic.DeepEqual(slice.Endpoints, wanted.Endpoints) &&
		equality.Semantic.DeepEqual(slice.Ports, wanted.Ports) &&
		maps.Equal(slice.Labels, wanted.Labels) && maps.Equal(slice.Annotations, wanted.Annotations) {
		return nil
	}
	slice = slice.DeepCopy()
	slice.Endpoints, slice.Ports = wanted.Endpoints, wanted.Ports
	slice.Labels, slice.Annotations = wanted.Labels, wanted.Annotations
	made, err := c.Client.DiscoveryV1().EndpointSlices(slice.Namespace).Update(ctx, slice,
		metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update EndpointSlice %s/%s: %w", slice.Namespace, slice.Name, err)
	}
	c.tracker.Update(made)
	return nil
}

func (c *controller) delete(ctx context.Context, list []*discoveryv1.EndpointSlice) error {
	for _, slice := range list {
		if slice.DeletionTimestamp != nil {
			continue
		}
		err := c.Client.DiscoveryV1().EndpointSlices(slice.Namespace).Delete(ctx, slice.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(slice.UID))})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("delete EndpointSlice %s/%s: %w", slice.Namespace, slice.Name, err)
		}
		c.tracker.ExpectDeletion(slice)
	}
	return nil
}
