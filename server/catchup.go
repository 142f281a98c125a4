package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kinproc/kinproc/server/internal/admission"
)

// What a request can see of the state, other than by reading etcd, comes from these caches. A reset
// waits for the ones that hold objects of a kind that it changes.
//
//   - The watch caches of all resources, and what the garbage collector knows of owners and
//     dependents: chain/internal/etcdstore, Backend.Switch.
//   - The stores of the shared informers: namespaces, services, quotas, and whatever else admission
//     plugins, the resolver of services and the control loops read; roles and bindings, once
//     somebody has needed them; custom resource definitions; APIServices. See waitStores.
//   - What admission plugins make of them: webhooks and policies are kept compiled, and the quota
//     plugin remembers quotas that its informer does not know yet. See plugins.
//   - What the extensions server makes of definitions: routes, discovery documents, and the storage
//     of custom resources, which it keeps by the UID of the definition. See waitDefinitions.
//   - The proxies and the discovery of APIServices, in the aggregator. See waitProxies.
//
// These need no wait. LimitRanger and Priority ask etcd whether their lists have changed. The
// allocator of node ports compares its bitmap with etcd's when it writes, and cluster IPs are in
// etcd only. Tokens are checked against etcd. The live lookups of the namespace lifecycle plugin
// only make it look more often. The configuration of priority and fairness and the OpenAPI v2
// document follow a moment later, as after any change. The conditions of APIServices are waited
// for when the requests pass again; see waitAvailable.

// caches are the informers of a control plane.
type caches struct {
	plane     *plane
	factories []factory
	// opened is how many stores each custom resource had before the reset.
	opened map[schema.GroupResource]int
}

// factory is a factory of shared informers. The generated ones have no common type.
type factory struct {
	wait     func(stop <-chan struct{}) map[reflect.Type]bool
	informer func(runtime.Object) cache.SharedIndexInformer
}

func (p *plane) caches() *caches {
	definitions, services := p.chain.Extensions.Informers, p.chain.Aggregator.APIRegistrationInformers
	all := []factory{
		{definitions.WaitForCacheSync, func(o runtime.Object) cache.SharedIndexInformer {
			return definitions.InformerFor(o, nil) // of what has been started, so it exists
		}},
		{services.WaitForCacheSync, func(o runtime.Object) cache.SharedIndexInformer {
			return services.InformerFor(o, nil)
		}},
	}
	for _, shared := range p.allInformers.Factories() {
		all = append(all, factory{shared.WaitForCacheSync,
			func(o runtime.Object) cache.SharedIndexInformer { return shared.InformerFor(o, nil) }})
	}
	return &caches{plane: p, factories: all, opened: map[schema.GroupResource]int{}}
}

// waitSynced waits until the informers that have been started have listed their objects.
func (c *caches) waitSynced(ctx context.Context) error {
	for _, f := range c.factories {
		f.wait(ctx.Done())
	}
	return context.Cause(ctx)
}

// stores returns the stores of the informers by the kind of their objects.
func (c *caches) stores() map[schema.GroupKind][]cache.Store {
	ended := make(chan struct{})
	close(ended)
	all := map[schema.GroupKind][]cache.Store{}
	for _, f := range c.factories {
		for t := range f.wait(ended) {
			object, ok := reflect.New(t.Elem()).Interface().(runtime.Object)
			if !ok {
				continue
			}
			gk := kindOf(object)
			all[gk] = append(all[gk], f.informer(object).GetStore())
		}
	}
	return all
}

var (
	definitionKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition").
			GroupKind()
	apiServiceKind = apiregistrationv1.SchemeGroupVersion.WithKind("APIService").GroupKind()
)

func kindOf(object runtime.Object) schema.GroupKind {
	switch object.(type) {
	case *apiextensionsv1.CustomResourceDefinition:
		return definitionKind
	case *apiregistrationv1.APIService:
		return apiServiceKind
	}
	kinds, _, err := clientscheme.Scheme.ObjectKinds(object)
	if err != nil || len(kinds) == 0 {
		return schema.GroupKind{}
	}
	return kinds[0].GroupKind()
}

// changed is an object that a reset has changed.
type changed struct {
	change
	schema.GroupKind
	// name is the object's key in stores: the name, or the namespace and the name.
	name string
}

// objects returns the changed objects. Of an object that was changed twice, it returns the last
// change, with the state before the first.
func (r *reset) objects() []changed {
	at := map[string]int{}
	var all []changed
	for _, c := range r.changes {
		if i, ok := at[c.key]; ok {
			c.before = all[i].before
			all[i].change = c
			continue
		}
		stored := c.after
		if stored == nil {
			stored = c.before
		}
		o := changed{change: c}
		if o.identify(stored) {
			at[c.key] = len(all)
			all = append(all, o)
		}
	}
	return all
}

var protobufMagic = string([]byte{0x6b, 0x38, 0x73, 0x00})

// identify reads the kind and the name of a stored object.
func (o *changed) identify(stored []byte) bool {
	var object metav1.PartialObjectMetadata
	if len(stored) > len(protobufMagic) && string(stored[:len(protobufMagic)]) == protobufMagic {
		var envelope runtime.Unknown
		// In every kind, the metadata is field 1.
		if envelope.Unmarshal(stored[len(protobufMagic):]) != nil ||
			object.Unmarshal(envelope.Raw) != nil {
			return false
		}
		object.TypeMeta = metav1.TypeMeta{APIVersion: envelope.APIVersion, Kind: envelope.Kind}
	} else if json.Unmarshal(stored, &object) != nil {
		return false
	}
	o.GroupKind = object.GroupVersionKind().GroupKind()
	o.name = cache.MetaObjectToName(&object).String()
	return object.Name != ""
}

// pollInterval is how often conditions are checked for which there is no event.
const pollInterval = 200 * time.Microsecond

func poll(ctx context.Context, done func() (bool, error)) error {
	return wait.PollUntilContextCancel(ctx, pollInterval, true,
		func(context.Context) (bool, error) { return done() })
}

// catchUp waits until nothing of before the reset can be seen in a cache.
func (c *caches) catchUp(ctx context.Context, r *reset) error {
	objects := r.objects()
	if err := c.waitStores(ctx, objects); err != nil {
		return err
	}
	if err := c.plane.plugins.CatchUp(ctx, kinds(objects)); err != nil {
		return err
	}
	if err := c.waitDefinitions(ctx, objects); err != nil {
		return err
	}
	return c.waitProxies(ctx, objects)
}

func kinds(objects []changed) admission.Changes {
	all := admission.Changes{}
	for _, o := range objects {
		if all[o.GroupKind] == nil {
			all[o.GroupKind] = map[string]admission.Change{}
		}
		all[o.GroupKind][o.name] = admission.Change{Revision: o.revision, Deleted: o.after == nil}
	}
	return all
}

// waitStores waits until the informers' stores have exactly the changed objects.
func (c *caches) waitStores(ctx context.Context, objects []changed) error {
	stores := c.stores()
	for _, o := range objects {
		for _, store := range stores[o.GroupKind] {
			if err := poll(ctx, func() (bool, error) { return o.in(store) }); err != nil {
				return fmt.Errorf("informer of %s: %w", o.GroupKind, errors.Join(err, context.Cause(ctx)))
			}
		}
	}
	return nil
}

func (o *changed) in(store cache.Store) (bool, error) {
	object, exists, err := store.GetByKey(o.name)
	if err != nil || !exists {
		return o.after == nil, err
	}
	m, ok := object.(metav1.Object)
	return ok && o.after != nil && m.GetResourceVersion() == strconv.FormatInt(o.revision, 10), nil
}
