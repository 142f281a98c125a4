package records

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	labelselection "k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// podAt is a pod as it is from a version on. A pod without a color is deleted.
type podAt struct {
	key, color string
	version    uint64
}

func (p podAt) String() string { return fmt.Sprintf("%s %s at %d", p.key, p.color, p.version) }

func asPodAt(obj runtime.Object) podAt {
	pod := obj.(*example.Pod)
	version, _ := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	return podAt{"/pods/" + pod.Namespace + "/" + pod.Name, pod.Labels["color"], version}
}

// view is what a client lists and watches.
type view struct {
	selection
	colors []string // those of the pods it selects; nil for all
}

func (v view) shows(p podAt) bool {
	return p.color != "" && v.has(p.key) && (v.colors == nil || slices.Contains(v.colors, p.color))
}

func (v view) options(version string, match metav1.ResourceVersionMatch) storage.ListOptions {
	p := storage.SelectionPredicate{
		Label: labels.Everything(), Field: fields.Everything(),
		GetAttrs: func(obj runtime.Object) (labels.Set, fields.Set, error) {
			return obj.(*example.Pod).Labels, fields.Set{}, nil
		},
	}
	if v.colors != nil {
		in, err := labels.NewRequirement("color", labelselection.In, v.colors)
		if err != nil {
			panic(err)
		}
		p.Label = labels.NewSelector().Add(*in)
	}
	return storage.ListOptions{
		ResourceVersion: version, ResourceVersionMatch: match, Predicate: p, Recursive: v.below,
	}
}

// told is what a client was told: the pods of a list, and the changes after its version.
type told struct {
	view
	listed  []podAt
	version uint64
	events  []string
	last    *metav1.Status // why the watch ended
}

// consistency is a test of a store with random writers.
type consistency struct {
	*testing.T
	*Store
	mu      sync.Mutex
	changes []podAt
	told    []*told
}

const (
	colors = 3
	keys   = 6
	ending = "end" // the color of all pods after the last writes
)

func keyNumber(n int) string { return fmt.Sprintf("/pods/ns%d/pod%d", n%2, n) }

func (c *consistency) changed(p podAt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, p)
}

// paint gives a pod a color, and creates it if it does not exist.
func (c *consistency) paint(ctx context.Context, n int, color string) {
	out := &example.Pod{}
	err := c.GuaranteedUpdate(ctx, keyNumber(n), out, true, nil,
		func(in runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
			pod := in.(*example.Pod)
			if pod.Labels["color"] == color {
				return nil, nil, errors.New("it has the color already")
			}
			pod.Namespace, pod.Name = fmt.Sprintf("ns%d", n%2), fmt.Sprintf("pod%d", n)
			pod.Labels = map[string]string{"color": color}
			return pod, nil, nil
		}, nil)
	if err == nil {
		c.changed(asPodAt(out))
	}
}

func (c *consistency) remove(ctx context.Context, n int) {
	out := &example.Pod{}
	err := c.Delete(ctx, keyNumber(n), out, nil, storage.ValidateAllObjectFunc, nil,
		storage.DeleteOptions{})
	if err == nil {
		p := asPodAt(out)
		p.color = ""
		c.changed(p)
	} else if !storage.IsNotFound(err) {
		c.Error(err)
	}
}

// list lists at a version that a client may have, and checks what it says of itself.
func (c *consistency) list(ctx context.Context, v view) *told {
	current, err := c.GetCurrentResourceVersion(ctx)
	if err != nil {
		c.Fatal(err)
	}
	version, match := "", metav1.ResourceVersionMatch("")
	switch rand.IntN(3) {
	case 0:
		version, match = fmt.Sprint(current), metav1.ResourceVersionMatchNotOlderThan
	case 1:
		version = fmt.Sprint(current - min(current-1, rand.Uint64N(20)))
		match = metav1.ResourceVersionMatchExact
	}
	list := &example.PodList{}
	err = c.GetList(ctx, v.key, v.options(version, match), list)
	if apierrors.IsResourceExpired(err) && match == metav1.ResourceVersionMatchExact {
		return nil
	}
	if err != nil {
		c.Errorf("list at %q (%s): %v", version, match, err)
		return nil
	}
	at, _ := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if match == metav1.ResourceVersionMatchExact && list.ResourceVersion != version ||
		match != metav1.ResourceVersionMatchExact && at < current {
		c.Errorf("a list at %q (%s) has the version %d; that of the store was %d", version, match, at,
			current)
	}
	t := &told{view: v, version: at}
	for i := range list.Items {
		t.listed = append(t.listed, asPodAt(&list.Items[i]))
	}
	return t
}

// follow lists and watches again and again until it has seen the last color of all pods.
func (c *consistency) follow(ctx context.Context, v view) {
	for ctx.Err() == nil {
		var t *told
		var changes watch.Interface
		var err error
		if rand.IntN(3) == 0 {
			options := v.options("", "")
			options.SendInitialEvents, options.Predicate.AllowWatchBookmarks = new(true), true
			if changes, err = c.Watch(ctx, v.key, options); err == nil {
				t = c.initial(v, changes)
			}
		} else if t = c.list(ctx, v); t != nil {
			changes, err = c.Watch(ctx, v.key, v.options(fmt.Sprint(t.version), ""))
		}
		if err != nil {
			c.Error(err)
			return
		}
		if t == nil {
			continue
		}
		done := c.watch(t, changes)
		changes.Stop()
		c.mu.Lock()
		c.told = append(c.told, t)
		c.mu.Unlock()
		if done {
			return
		}
	}
	c.Error("a client gave up")
}

// initial reads the initial events of a watch as if they were a list.
func (c *consistency) initial(v view, changes watch.Interface) *told {
	t := &told{view: v}
	for e := range changes.ResultChan() {
		if e.Type == watch.Bookmark {
			t.version = asPodAt(e.Object).version
			return t
		}
		if e.Type != watch.Added {
			c.Errorf("an initial event is %v", e)
		}
		t.listed = append(t.listed, asPodAt(e.Object))
	}
	c.Error("the initial events have no end")
	return t
}

// watch reports whether the client has seen the last color of all pods. It reads slowly at times,
// so that the history gets ahead of it, and stops at times.
func (c *consistency) watch(t *told, changes watch.Interface) (done bool) {
	missing := map[string]bool{}
	for n := range keys {
		if key := keyNumber(n); t.has(key) {
			missing[key] = true
		}
	}
	for _, p := range t.listed {
		if p.color == ending {
			delete(missing, p.key)
		}
	}
	patience := rand.IntN(400)
	for n := 0; len(missing) > 0; n++ {
		e, ok := <-changes.ResultChan()
		if !ok {
			c.Error("a watch ended without a reason")
			return true
		}
		if e.Type == watch.Error {
			t.last = e.Object.(*metav1.Status)
			return false
		}
		p := asPodAt(e.Object)
		t.events = append(t.events, fmt.Sprint(e.Type, " ", p))
		if p.color == ending {
			delete(missing, p.key)
		}
		if n == patience {
			return false
		}
	}
	return true
}

// expected returns the pods in a view at a version, and the events after that.
func (c *consistency) expected(v view, version uint64) (listed []podAt, events []string) {
	pods := map[string]podAt{}
	for _, now := range c.changes {
		before := pods[now.key]
		pods[now.key] = now
		if now.version <= version {
			continue
		}
		switch was, is := v.shows(before), v.shows(now); {
		case is && was:
			events = append(events, fmt.Sprint(watch.Modified, " ", now))
		case is:
			events = append(events, fmt.Sprint(watch.Added, " ", now))
		case was: // with its last state, and the version in which it disappeared
			events = append(events, fmt.Sprint(watch.Deleted, " ",
				podAt{now.key, before.color, now.version}))
		}
	}
	then := map[string]podAt{}
	for _, p := range c.changes {
		if p.version <= version {
			then[p.key] = p
		}
	}
	for _, key := range slices.Sorted(maps.Keys(then)) {
		if v.shows(then[key]) {
			listed = append(listed, then[key])
		}
	}
	return listed, events
}

// TestWatchesAreConsistent has random writers, clients that list and watch at random versions, and
// a history that is forgotten now and then. Whatever a client is told is what happened: a list is
// the state at its version, and a watch has each change after that once and in order, until it ends
// or says that the client has to list again.
func TestWatchesAreConsistent(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]Persistence{"memory": nowhere{}, "files": newFiles(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testConsistency(t, p)
		})
	}
}

func testConsistency(t *testing.T, p Persistence) {
	t.Helper()
	c := &consistency{T: t, Store: newStore(t, p)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var clients, writers, forgetting sync.WaitGroup
	for n := range 24 {
		v := view{selection: selection{"/pods/", true}}
		if n%4 == 1 {
			v.selection = selection{fmt.Sprintf("/pods/ns%d/", n/4%2), true}
		}
		if n%4 == 2 {
			v.selection = selection{keyNumber(n / 4 % keys), false}
		}
		if n%3 == 1 {
			v.colors = []string{"color0", ending}
		}
		clients.Go(func() { c.follow(ctx, v) })
	}
	for range 4 {
		writers.Go(func() {
			for range 250 {
				if n := rand.IntN(keys); rand.IntN(4) == 0 {
					c.remove(ctx, n)
				} else {
					c.paint(ctx, n, fmt.Sprint("color", rand.IntN(colors)))
				}
			}
		})
	}
	written := make(chan struct{})
	forgetting.Go(func() {
		for {
			select {
			case <-written:
				return
			default:
				c.history.mu.Lock()
				if n := len(c.history.changes); n > 60 {
					c.history.changes = c.history.changes[n-20:]
				}
				c.history.mu.Unlock()
			}
		}
	})
	writers.Wait()
	for n := range keys {
		c.paint(ctx, n, ending)
	}
	close(written)
	forgetting.Wait()
	clients.Wait()

	slices.SortFunc(c.changes, func(a, b podAt) int { return int(a.version) - int(b.version) })
	expired, events := 0, 0
	for _, told := range c.told {
		listed, changes := c.expected(told.view, told.version)
		if !slices.Equal(told.listed, listed) {
			t.Errorf("%+v: at %d there are %v, want %v", told.view, told.version, told.listed, listed)
		}
		if n := len(told.events); n > len(changes) || !slices.Equal(told.events, changes[:n]) {
			t.Errorf("%+v since %d: %v, want the beginning of %v", told.view, told.version, told.events,
				changes)
		}
		if told.last != nil {
			if expired++; told.last.Code != 410 {
				t.Errorf("a watch ended with %v", told.last)
			}
		}
		events += len(told.events)
	}
	t.Logf("%d changes, %d watches with %d events, %d expired", len(c.changes), len(c.told), events,
		expired)
}

// A client that comes from a time when the clock was ahead has seen versions that the store does
// not have. It is told to list again, and does not wait until the store has them.
func TestWatchFromTheFuture(t *testing.T) {
	t.Parallel()
	s := newStore(t, nowhere{})
	v := view{selection: selection{"/pods/", true}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changes, err := s.Watch(ctx, v.key, v.options("1000", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	c := &consistency{T: t, Store: s}
	c.paint(t.Context(), 0, ending)
	e := <-changes.ResultChan()
	if status, ok := e.Object.(*metav1.Status); !ok || status.Code != 410 {
		t.Errorf("the first event is %v %v, want code 410", e.Type, e.Object)
	}
}
