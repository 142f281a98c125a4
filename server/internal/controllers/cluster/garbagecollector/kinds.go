package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// resource is where the objects of a kind are served.
type resource struct {
	schema.GroupVersionResource
	namespaced bool
}

// errNoKind says that no resource serves a kind, possibly not yet.
var errNoKind = errors.New("no resource serves the kind")

// kinds finds the resources of kinds. It asks discovery for one group version at a time. The whole
// document would make the server install the routes of all built-in kinds.
type kinds struct {
	builtIn   func(schema.GroupVersionKind) (name string, namespaced, ok bool)
	discovery discovery.DiscoveryInterface

	mu    sync.Mutex
	found map[schema.GroupVersionKind]resource
	// epoch counts calls of forget, so that an answer from before is not kept.
	epoch int
}

// forget makes later calls ask again, because CRDs or APIServices have changed.
func (k *kinds) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.found = nil
	k.epoch++
}

func (k *kinds) known(kind schema.GroupVersionKind) (resource, int, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.found[kind]
	return r, k.epoch, ok
}

func (k *kinds) keep(kind schema.GroupVersionKind, r resource, epoch int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.epoch != epoch {
		return
	}
	if k.found == nil {
		k.found = map[schema.GroupVersionKind]resource{}
	}
	k.found[kind] = r
}

// find returns the resource of a kind in the given version.
func (k *kinds) find(ctx context.Context, kind schema.GroupVersionKind) (resource, error) {
	r, epoch, ok := k.known(kind)
	if ok {
		return r, nil
	}
	r, err := k.ask(ctx, kind)
	if err == nil {
		k.keep(kind, r, epoch)
	}
	return r, err
}

// findStored returns a resource of a kind, in the given version if it is served. Objects may be
// stored in a version that is not served.
func (k *kinds) findStored(ctx context.Context, kind schema.GroupVersionKind) (resource, error) {
	r, epoch, ok := k.known(kind)
	if ok {
		return r, nil
	}
	r, err := k.find(ctx, kind)
	if !errors.Is(err, errNoKind) || kind.Group == "" {
		return r, err
	}
	var group metav1.APIGroup
	if err := k.discovery.RESTClient().Get().AbsPath("/apis", kind.Group).Do(ctx).
		Into(&group); err != nil {
		if apierrors.IsNotFound(err) {
			err = errNoKind
		}
		return resource{}, fmt.Errorf("discover the versions of %s: %w", kind.Group, err)
	}
	for _, v := range group.Versions {
		served := schema.GroupVersionKind{Group: kind.Group, Version: v.Version, Kind: kind.Kind}
		if r, err = k.ask(ctx, served); err == nil {
			k.keep(kind, r, epoch)
			return r, nil
		}
	}
	return resource{}, err
}

// ask returns the resource of a kind without looking at those that were found before.
func (k *kinds) ask(ctx context.Context, kind schema.GroupVersionKind) (resource, error) {
	gv := kind.GroupVersion()
	if name, namespaced, ok := k.builtIn(kind); ok {
		return resource{gv.WithResource(name), namespaced}, nil
	}
	list, err := k.list(ctx, gv)
	if err != nil {
		return resource{}, err
	}
	for _, r := range list {
		if r.Kind == kind.Kind {
			return resource{gv.WithResource(r.Name), r.Namespaced}, nil
		}
	}
	return resource{}, fmt.Errorf("%w %s", errNoKind, kind)
}

// list returns the resources of a group version, without subresources.
func (k *kinds) list(
	ctx context.Context, gv schema.GroupVersion,
) ([]metav1.APIResource, error) {
	list, err := discovery.ToServerResourcesInterfaceWithContext(k.discovery).
		ServerResourcesForGroupVersionWithContext(ctx, gv.String())
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s is not served", errNoKind, gv)
	}
	if err != nil {
		return nil, fmt.Errorf("discover %s: %w", gv, err)
	}
	var resources []metav1.APIResource
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			resources = append(resources, r)
		}
	}
	return resources, nil
}
