package resourcequotas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	evaluators "github.com/kinproc/kinproc/server/internal/admission/quota"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// resources follows the resources that quotas limit, each from the first quota on that does.
type resources struct {
	controller *controller
	running    sync.WaitGroup

	discovered discovered // only the worker uses it

	mu       sync.Mutex
	trackers map[schema.GroupVersionResource]*tracker
	tracked  map[schema.GroupResource]schema.GroupVersionResource // the keys of trackers
}

// tracker follows the objects of a resource.
type tracker struct {
	objects cache.Indexer
	wait    func(context.Context) error // for the first list
	ctx     context.Context             // ends with the informer
	cancel  context.CancelFunc          // nil for a shared informer
}

func (r *resources) stop() {
	r.mu.Lock()
	for _, t := range r.trackers {
		if t.cancel != nil {
			t.cancel()
		}
	}
	r.mu.Unlock()
	r.running.Wait()
}

// find returns the preferred version in which a namespaced resource can be listed and watched. Only
// the worker calls it.
func (r *resources) find(
	ctx context.Context, resource schema.GroupResource,
) (schema.GroupVersionResource, bool, error) {
	r.mu.Lock()
	known, ok := r.tracked[resource]
	r.mu.Unlock()
	if ok {
		return known, true, nil
	}
	if time.Since(r.discovered.at) >= fresh {
		r.discovered = r.discover(ctx)
	}
	found, ok := r.discovered.found[resource]
	if !ok {
		return found, false, cmp.Or(r.discovered.err, r.discovered.failed[resource.Group])
	}
	return found, true, nil
}

// discovered is what discovery said of all resources at once.
type discovered struct {
	at     time.Time
	found  map[schema.GroupResource]schema.GroupVersionResource
	failed map[string]error // by group
	err    error            // of all groups
}

func (r *resources) discover(ctx context.Context) discovered {
	lists, err := discovery.ServerPreferredNamespacedResourcesWithContext(ctx,
		discovery.ToDiscoveryInterfaceWithContext(r.controller.Client.Discovery()))
	d := discovered{
		found: map[schema.GroupResource]schema.GroupVersionResource{}, failed: map[string]error{},
	}
	if failed := new(discovery.ErrGroupDiscoveryFailed); errors.As(err, &failed) {
		for gv, err := range failed.Groups {
			d.failed[gv.Group] = fmt.Errorf("describe %s: %w", gv, err)
		}
	} else if err != nil {
		d.err = fmt.Errorf("discover resources: %w", err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // not a group that a quota can name
		}
		for _, one := range list.APIResources {
			if countable(one) {
				d.found[gv.WithResource(one.Name).GroupResource()] = gv.WithResource(one.Name)
			}
		}
	}
	d.at = time.Now()
	return d
}

func countable(r metav1.APIResource) bool {
	return r.Namespaced && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch")
}

// describe returns what discovery says of a resource, if objects of it can be counted.
func (r *resources) describe(
	ctx context.Context, gvr schema.GroupVersionResource,
) (metav1.APIResource, bool, error) {
	list, err := discovery.ToServerResourcesInterfaceWithContext(r.controller.Client.Discovery()).
		ServerResourcesForGroupVersionWithContext(ctx, gvr.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return metav1.APIResource{}, false, nil
	}
	if err != nil {
		return metav1.APIResource{}, false, fmt.Errorf("describe %s: %w", gvr, err)
	}
	for _, found := range list.APIResources {
		if found.Name == gvr.Resource && countable(found) {
			return found, true, nil
		}
	}
	return metav1.APIResource{}, false, nil
}

// firstList is how long a pass waits for the first list of a resource. An extension API server may
// never answer, and the other quotas have to be counted.
const firstList = time.Second

// cached returns a function that returns listers which ask informers.
func (r *resources) cached(ctx context.Context) quota.ListerForResourceFunc {
	return func(gvr schema.GroupVersionResource) (cache.GenericLister, error) {
		return r.lister(ctx, gvr)
	}
}

// lister returns a lister of a resource, and follows its objects from now on. Only the worker calls
// it.
func (r *resources) lister(
	ctx context.Context, gvr schema.GroupVersionResource,
) (cache.GenericLister, error) {
	r.mu.Lock()
	t := r.trackers[gvr]
	r.mu.Unlock()
	if t == nil {
		found, ok, err := r.describe(ctx, gvr)
		if err == nil && !ok {
			err = fmt.Errorf("%s cannot be listed", gvr)
		}
		if err != nil {
			return nil, err
		}
		if t, err = r.track(gvr, found.Kind); err != nil {
			return nil, err
		}
	}
	// The CRD of the resource may be deleted before the first list.
	ctx, cancel := context.WithTimeout(ctx, firstList)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	if err := t.wait(ctx); err != nil {
		return nil, fmt.Errorf("list %s: %w", gvr, err)
	}
	return cache.NewGenericLister(t.objects, gvr.GroupResource()), nil
}

func (r *resources) track(gvr schema.GroupVersionResource, kind string) (*tracker, error) {
	t := &tracker{ctx: r.controller.Context()} // the informer outlives the pass
	// The objects of built-in kinds are counted by more than their number.
	example, err := scheme.Scheme.New(gvr.GroupVersion().WithKind(kind))
	var informer cache.SharedIndexInformer
	if err == nil {
		informer = r.controller.Informer(example)
	}
	if informer != nil {
		if err := r.controller.Watch(loop.Watch{
			Informer: informer, Handler: r.handler(gvr.GroupResource()),
		}); err != nil {
			return nil, err
		}
		t.objects, t.wait = informer.GetIndexer(), r.controller.WaitForSync
	} else {
		informer = metadatainformer.NewFilteredMetadataInformer(r.controller.Metadata, gvr,
			metav1.NamespaceAll, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
			nil).Informer()
		registration, err := informer.AddEventHandler(r.handler(gvr.GroupResource()))
		if err != nil {
			return nil, err
		}
		t.ctx, t.cancel = context.WithCancel(t.ctx)
		err = informer.SetWatchErrorHandlerWithContext(
			func(ctx context.Context, reflector *cache.Reflector, err error) {
				if apierrors.IsNotFound(err) {
					r.gone(gvr)
					return
				}
				cache.DefaultWatchErrorHandler(ctx, reflector, err)
			})
		if err != nil {
			return nil, err
		}
		t.objects = informer.GetIndexer()
		t.wait = func(ctx context.Context) error {
			cache.WaitFor(ctx, "", registration.HasSyncedChecker())
			return ctx.Err()
		}
		r.running.Go(func() { informer.RunWithContext(t.ctx) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trackers[gvr], r.tracked[gvr.GroupResource()] = t, gvr
	return t, nil
}

// gone stops following a resource whose CRD was deleted.
func (r *resources) gone(gvr schema.GroupVersionResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.trackers[gvr]; t != nil {
		t.cancel()
		delete(r.trackers, gvr)
		delete(r.tracked, gvr.GroupResource())
	}
}

// handler has quotas counted as the objects of a resource change.
func (r *resources) handler(resource schema.GroupResource) cache.ResourceEventHandler {
	evaluator := generic.NewRegistry(evaluators.Configuration(nil).Evaluators()).Get(resource)
	changed := func(obj any, less bool) {
		if object, ok := obj.(metav1.Object); ok {
			r.controller.changed(object.GetNamespace(), less)
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				changed(obj, false)
			}
		},
		UpdateFunc: func(old, obj any) {
			if evaluator != nil && usesOther(evaluator, old, obj) {
				changed(obj, true)
			}
		},
		DeleteFunc: func(obj any) {
			changed(loop.Deleted(obj), true)
		},
	}
}

// usesOther reports whether the usage of an object has changed, or the scopes that it is in.
func usesOther(evaluator quota.Evaluator, old, obj any) bool {
	if old, ok := old.(*corev1.Pod); ok {
		pod := obj.(*corev1.Pod)
		if !ptr.Equal(old.Spec.ActiveDeadlineSeconds, pod.Spec.ActiveDeadlineSeconds) {
			return true
		}
	}
	before, err := evaluator.Usage(old.(runtime.Object))
	if err != nil {
		return true
	}
	after, err := evaluator.Usage(obj.(runtime.Object))
	return err != nil || !quota.Equals(before, after)
}
