package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "garbage-collector-controller"

const (
	// workers is the number of objects that are processed concurrently, as in
	// kube-controller-manager.
	workers = 20
	// lastDelay is the longest delay between two attempts.
	lastDelay = 5 * time.Minute
)

// Handler learns of all stored objects. It is the same type as MetadataHandler in
// chain/internal/etcdstore.
type Handler = interface {
	Restart()
	Put(key string, object *metav1.PartialObjectMetadata, value []byte)
	Delete(key string, revision int64)
	Done(revision int64)
}

// Storage is where the objects are stored.
type Storage interface {
	// FollowMetadata passes all objects and their changes on to h until ctx ends.
	FollowMetadata(ctx context.Context, h Handler)
	// Key returns the key of an object.
	Key(resource schema.GroupResource, namespace, name string) string
	// Metadata returns an object, or nil if it does not exist, and the current revision.
	Metadata(ctx context.Context, key string) (*metav1.PartialObjectMetadata, int64, error)
	// Namesakes returns the keys of the objects of a resource that have a name, in any namespace.
	Namesakes(ctx context.Context, resource schema.GroupResource, name string) ([]string, error)
}

// Loop is the loop that collects garbage. BuiltIn returns the resource of a built-in kind.
func Loop(
	storage Storage, builtIn func(schema.GroupVersionKind) (name string, namespaced, ok bool),
) loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "garbagecollector",
		Purpose:   "deletes objects whose owners are gone",
		UserAgent: "kube-controller-manager/%s/generic-garbage-collector",
		Begin: func(c *loop.Controller) loop.Work {
			r := &run{
				Controller: c, storage: storage,
				kinds: &kinds{builtIn: builtIn, discovery: c.Client.Discovery()},
				queue: loop.NewOf[*node](Name, lastDelay), homeless: map[*node]struct{}{},
				services: map[string]service{},
			}
			r.graph, r.remotes = newGraph(r.queue.Enqueue), newRemotes(r)
			return loop.Work{Run: r.run}
		},
	}
}

// run is the state of one call of Run.
type run struct {
	*loop.Controller
	storage Storage
	graph   *graph
	kinds   *kinds
	remotes *remotes
	queue   *loop.Of[*node]
	running sync.WaitGroup

	mu sync.Mutex
	// homeless are the nodes with something of a kind that nothing serves at the moment.
	homeless map[*node]struct{}

	// services are the APIServices of extension API servers. Only the methods of Handler use them.
	services        map[string]service
	servicesChanged bool
}

// run works until ctx ends.
func (r *run) run(ctx context.Context) error {
	r.running.Go(func() { r.storage.FollowMetadata(ctx, r) })
	defer r.running.Wait()
	return r.queue.Run(ctx, workers, r.handle)
}

func (r *run) handle(ctx context.Context, n *node) (time.Duration, error) {
	err := r.process(ctx, n)
	homeless := errors.Is(err, errNoKind) || apierrors.IsServiceUnavailable(err)
	r.mu.Lock()
	if delete(r.homeless, n); homeless {
		r.homeless[n] = struct{}{}
	}
	r.mu.Unlock()
	if homeless || apierrors.IsConflict(err) || errors.Is(err, errUnseen) ||
		errors.Is(err, errChanging) {
		return 0, loop.Poll(lastDelay) // none of these is worth a report
	}
	return 0, err
}

// The keys of what decides which kinds are served.
const (
	definitionKeys = "apiextensions.k8s.io/customresourcedefinitions/"
	serviceKeys    = "apiregistration.k8s.io/apiservices/"
)

// Restart implements Handler.
func (r *run) Restart() {
	r.graph.restart()
	r.services, r.servicesChanged = map[string]service{}, true
}

// Put implements Handler.
func (r *run) Put(key string, m *metav1.PartialObjectMetadata, value []byte) {
	if name, ok := strings.CutPrefix(key, serviceKeys); ok {
		r.putService(name, value)
	}
	if decidesKinds(key) {
		r.kindsChanged()
	}
	o := newObject(m)
	r.graph.add(change{key: key, object: o, revision: o.revision})
}

// Delete implements Handler.
func (r *run) Delete(key string, revision int64) {
	if name, ok := strings.CutPrefix(key, serviceKeys); ok {
		r.deleteService(name)
	}
	if decidesKinds(key) {
		r.kindsChanged()
	}
	r.graph.add(change{key: key, revision: revision})
}

// Done implements Handler.
func (r *run) Done(revision int64) {
	r.graph.done(revision)
	if r.servicesChanged {
		r.servicesChanged = false
		r.remotes.set(maps.Clone(r.services))
	}
}

func decidesKinds(key string) bool {
	return strings.HasPrefix(key, definitionKeys) || strings.HasPrefix(key, serviceKeys)
}

// kindsChanged tries again what failed because a kind was not served.
func (r *run) kindsChanged() {
	r.kinds.forget()
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := range r.homeless {
		r.queue.Enqueue(n)
	}
}

func (r *run) putService(name string, value []byte) {
	var s apiregistrationv1.APIService
	if err := json.Unmarshal(value, &s); err != nil || s.Spec.Service == nil {
		r.deleteService(name) // if err is not nil, nobody else can read it either
		return
	}
	is := service{
		version:  schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version},
		priority: s.Spec.VersionPriority,
	}
	for _, c := range s.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			is.available = c.Status == apiregistrationv1.ConditionTrue
		}
	}
	if r.services[name] != is {
		r.services[name], r.servicesChanged = is, true
	}
}

func (r *run) deleteService(name string) {
	if _, ok := r.services[name]; ok {
		delete(r.services, name)
		r.servicesChanged = true
	}
}
