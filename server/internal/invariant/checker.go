package invariant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// A Violation is the first revision at which a rule was not true.
type Violation struct {
	Rule string
	// Type is what happened to the object of Resource, Namespace and Name at Revision. It is empty
	// of a rule that was not true from the start.
	Type            watch.EventType
	Resource        schema.GroupVersionResource
	Namespace, Name string
	Revision        string
	// Err is why the rule could not be evaluated, or nil.
	Err error
}

// A Checker checks the rules of a set in one control plane. Its methods must not be called at the
// same time.
type Checker struct {
	set     *Set
	client  dynamic.Interface
	stop    context.CancelFunc
	ended   sync.WaitGroup
	objects map[schema.GroupVersionResource]map[types.String]*object // by UID
	lists   map[schema.GroupVersionResource]ref.Val                  // what rules see of them
	broken  map[*compiled]bool                                       // rules that were not true once
	started bool                                                     // the first state has been checked

	mu      sync.Mutex
	events  []event
	newest  map[types.String]seen // by UID
	failed  error
	changed chan struct{}
}

// object is a version of an object.
type object struct {
	key   string
	value ref.Val
}

// seen is the last event of an object that has arrived.
type seen struct {
	resource schema.GroupVersionResource
	version  uint64
	exists   bool
}

type event struct {
	Violation // without a rule
	uid       types.String
	version   uint64
	object    *object // nil if it was deleted
}

// behind is how long Check waits for events. It is only reached if a watch does not work.
const behind = time.Minute

// Watch begins to record what happens in a control plane.
func (s *Set) Watch(ctx context.Context, client dynamic.Interface) (*Checker, error) {
	ctx, stop := context.WithCancel(ctx)
	c := &Checker{
		set: s, client: client, stop: stop, broken: map[*compiled]bool{},
		objects: map[schema.GroupVersionResource]map[types.String]*object{},
		lists:   map[schema.GroupVersionResource]ref.Val{},
		newest:  map[types.String]seen{}, changed: make(chan struct{}, 1),
	}
	for _, r := range s.resources {
		if err := c.watch(ctx, r); err != nil {
			c.Close()
			return nil, fmt.Errorf("watch %s: %w", r.GroupResource(), err)
		}
	}
	return c, nil
}

// Close ends the recording.
func (c *Checker) Close() {
	c.stop()
	c.ended.Wait()
}

// watch lists the objects of a resource, and follows them from there.
func (c *Checker) watch(ctx context.Context, r schema.GroupVersionResource) error {
	list, err := c.client.Resource(r).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	c.objects[r] = map[types.String]*object{}
	for i := range list.Items {
		e, err := newEvent(r, watch.Added, &list.Items[i])
		if err != nil {
			return err
		}
		c.objects[r][e.uid] = e.object
		c.newest[e.uid] = seen{r, e.version, true}
	}
	c.relist(r)
	w, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: c.client.Resource(r).Watch,
	})
	if err != nil {
		return err
	}
	c.ended.Go(func() {
		for e := range w.ResultChan() {
			c.receive(r, e)
		}
		<-w.Done()
	})
	return nil
}

func newEvent(
	r schema.GroupVersionResource, t watch.EventType, o *unstructured.Unstructured,
) (event, error) {
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return event{}, err
	}
	e := event{
		uid: types.String(o.GetUID()), version: version,
		Violation: Violation{
			Type: t, Resource: r, Namespace: o.GetNamespace(), Name: o.GetName(),
			Revision: o.GetResourceVersion(),
		},
	}
	if t != watch.Deleted {
		e.object = &object{
			o.GetNamespace() + "/" + o.GetName(), types.DefaultTypeAdapter.NativeToValue(o.Object),
		}
	}
	return e, nil
}

// receive records an event.
func (c *Checker) receive(r schema.GroupVersionResource, e watch.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := e.Object.(*unstructured.Unstructured)
	if e.Type == watch.Error || !ok {
		c.failed = fmt.Errorf("watch %s: %w", r.GroupResource(), apierrors.FromObject(e.Object))
	} else if recorded, err := newEvent(r, e.Type, o); err != nil {
		c.failed = fmt.Errorf("watch %s: %w", r.GroupResource(), err)
	} else {
		c.events = append(c.events, recorded)
		c.newest[recorded.uid] = seen{r, recorded.version, e.Type != watch.Deleted}
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Check evaluates the rules at each revision until now, from where the last call has ended. It
// returns those that are not true for the first time.
func (c *Checker) Check(ctx context.Context) ([]Violation, error) {
	if len(c.set.rules) == 0 {
		return nil, nil
	}
	revision, err := c.catchUp(ctx)
	if err != nil {
		return nil, err
	}
	var violations []Violation
	if !c.started {
		c.started = true
		for _, r := range c.set.rules {
			if !r.changes {
				violations = c.evaluate(ctx, violations, r, Violation{}, nil, nil)
			}
		}
	}
	c.mu.Lock()
	slices.SortStableFunc(c.events, func(a, b event) int {
		return int(int64(a.version) - int64(b.version))
	})
	n := 0
	for n < len(c.events) && c.events[n].version <= revision {
		n++
	}
	events := slices.Clone(c.events[:n])
	c.events = slices.Delete(c.events, 0, n)
	c.mu.Unlock()
	for _, e := range events {
		violations = c.apply(ctx, violations, e)
	}
	return violations, ctx.Err()
}

// apply changes the state by an event, and evaluates the rules that it concerns.
func (c *Checker) apply(ctx context.Context, violations []Violation, e event) []Violation {
	objects := c.objects[e.Resource]
	before := objects[e.uid]
	if e.object == nil {
		delete(objects, e.uid)
	} else {
		objects[e.uid] = e.object
	}
	c.relist(e.Resource)
	for _, r := range c.set.rules {
		if r.changes && r.of != e.Resource ||
			!r.changes && !slices.Contains(r.resources(), e.Resource) {
			continue
		}
		violations = c.evaluate(ctx, violations, r, e.Violation, before, e.object)
	}
	return violations
}

// relist makes the list of a resource's objects that rules see, in the order of a list of the API.
func (c *Checker) relist(r schema.GroupVersionResource) {
	objects := slices.SortedFunc(maps.Values(c.objects[r]), func(a, b *object) int {
		return strings.Compare(a.key, b.key)
	})
	var values []ref.Val
	for _, o := range objects {
		values = append(values, o.value)
	}
	c.lists[r] = types.NewRefValList(types.DefaultTypeAdapter, values)
}

// evaluate evaluates a rule, and adds a violation if it is not true for the first time.
func (c *Checker) evaluate(
	ctx context.Context, violations []Violation, r *compiled, at Violation, before, after *object,
) []Violation {
	if c.broken[r] {
		return violations
	}
	variables := map[string]any{oldVariable: before.orNull(), newVariable: after.orNull()}
	for name, resource := range r.lists {
		variables[name] = c.lists[resource]
	}
	value, _, err := r.program.ContextEval(ctx, variables)
	if err == nil && value == types.True {
		return violations
	}
	if err == nil && value.Type() != types.BoolType {
		err = fmt.Errorf("the value is a %s, not a bool", value.Type().TypeName())
	}
	c.broken[r] = true
	at.Rule, at.Err = r.text, err
	return append(violations, at)
}

func (o *object) orNull() ref.Val {
	if o == nil {
		return types.NullValue
	}
	return o.value
}

// catchUp waits until the events of each revision that there is now have arrived, and returns that
// revision.
func (c *Checker) catchUp(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, behind, errors.New("the watches are behind"))
	defer cancel()
	var revision uint64
	for _, r := range c.set.resources {
		list, err := c.client.Resource(r).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // its definition is gone, and its objects before that
		}
		if err != nil {
			return 0, fmt.Errorf("list %s: %w", r.GroupResource(), err)
		}
		present, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("list %s: %w", r.GroupResource(), err)
		}
		if revision == 0 {
			revision = present // later ones of other resources are not earlier
		}
		for {
			done, err := c.has(r, list, present)
			if err != nil {
				return 0, err
			}
			if done {
				break
			}
			select {
			case <-c.changed:
			case <-ctx.Done():
				return 0, fmt.Errorf("%s: %w", r.GroupResource(), context.Cause(ctx))
			}
		}
	}
	return revision, nil
}

// has reports whether the events that have led to a list have arrived.
func (c *Checker) has(
	r schema.GroupVersionResource, list *unstructured.UnstructuredList, revision uint64,
) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return false, c.failed
	}
	listed := map[types.String]bool{}
	for i := range list.Items {
		e, err := newEvent(r, watch.Added, &list.Items[i])
		if err != nil {
			return false, err
		}
		if listed[e.uid] = true; c.newest[e.uid].version < e.version {
			return false, nil
		}
	}
	for uid, s := range c.newest {
		if s.resource == r && s.exists && s.version <= revision && !listed[uid] {
			return false, nil
		}
	}
	return true, nil
}
