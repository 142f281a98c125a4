package loop

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/tools/record"
)

// source is where the informer of a test lists and watches config maps.
type source struct {
	*cachetesting.FakeControllerSource
	cache.SharedIndexInformer
}

func newSource(names ...string) source {
	s := source{FakeControllerSource: cachetesting.NewFakeControllerSource()}
	s.SharedIndexInformer = cache.NewSharedIndexInformer(s.FakeControllerSource, &corev1.ConfigMap{}, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, name := range names {
		s.FakeControllerSource.Add(configMap(name))
	}
	return s
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
}

// factory starts informers, each once.
type factory struct {
	Informers // whose other methods are not called
	running   sync.WaitGroup

	mu   sync.Mutex
	made []cache.SharedIndexInformer // that are not started
}

// newFactory returns a factory whose informers end before the test does. The loops end before them.
func newFactory(t *testing.T) *factory {
	f := &factory{}
	t.Cleanup(f.running.Wait)
	return f
}

func (f *factory) make(s source) cache.SharedIndexInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made = append(f.made, s.SharedIndexInformer)
	return s.SharedIndexInformer
}

func (f *factory) StartWithContext(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, informer := range f.made {
		f.running.Go(func() { informer.RunWithContext(ctx) })
	}
	f.made = nil
}

// start runs a loop until the test ends or stop is called.
func start(t *testing.T, f *factory, l Loop) (stop func()) {
	t.Helper()
	c, err := l.New(Dependencies{
		Informers:   f,
		NewRecorder: func(string) record.EventRecorder { return record.NewFakeRecorder(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// TestLoop has keys that follow from objects that exist, and from those that come and go later.
func TestLoop(t *testing.T) {
	t.Parallel()
	s, f := newSource("a", "b"), newFactory(t)
	keys := make(chan string, 10)
	var gone bool
	stop := start(t, f, Loop{Name: "test", Begin: func(c *Controller) Work {
		informer := f.make(s)
		return Work{
			Watches: []Watch{Keys(informer, c.Enqueue)},
			Sync: func(_ context.Context, key string) (time.Duration, error) {
				gone = Get[corev1.ConfigMap](informer, key) == nil
				if len(InNamespace[corev1.ConfigMap](informer, "n")) == 0 && !gone {
					t.Error("no object in the namespace")
				}
				keys <- key
				return 0, nil
			},
			End: func() { close(keys) },
		}
	}})
	first := []string{<-keys, <-keys}
	slices.Sort(first)
	if !slices.Equal(first, []string{"n/a", "n/b"}) {
		t.Errorf("the keys of the objects are %v", first)
	}
	s.FakeControllerSource.Add(configMap("c"))
	if key := <-keys; key != "n/c" || gone {
		t.Errorf("a new object has the key %s, gone: %t", key, gone)
	}
	s.Delete(configMap("c"))
	if key := <-keys; key != "n/c" || !gone {
		t.Errorf("a deleted object has the key %s, gone: %t", key, gone)
	}
	stop()
	if key, ok := <-keys; ok {
		t.Errorf("key %s after the end of the loop", key)
	}
}

// TestWatchInPass begins to watch in a pass. The informer goes on after the pass.
func TestWatchInPass(t *testing.T) {
	t.Parallel()
	s, f := newSource("a"), newFactory(t)
	seen, passed := make(chan string, 10), make(chan error, 1)
	start(t, f, Loop{Name: "test", Begin: func(c *Controller) Work {
		c.Add("key")
		return Work{Sync: func(ctx context.Context, _ string) (time.Duration, error) {
			err := c.Watch(On(f.make(s), func(old, obj *corev1.ConfigMap) {
				if old == nil {
					seen <- obj.Name
				}
			}))
			if err == nil {
				err = c.WaitForSync(ctx)
			}
			context.AfterFunc(ctx, func() { passed <- err }) // the pass has ended
			return 0, nil
		}}
	}})
	if err := <-passed; err != nil {
		t.Fatal(err)
	}
	if name := <-seen; name != "a" {
		t.Errorf("saw %s first", name)
	}
	s.FakeControllerSource.Add(configMap("b"))
	if name := <-seen; name != "b" {
		t.Errorf("saw %s after the pass", name)
	}
}

// TestIndexers lets two loops ask for the same index.
func TestIndexers(t *testing.T) {
	t.Parallel()
	s, f := newSource("a"), newFactory(t)
	informer := f.make(s)
	w := Watch{Informer: informer, Indexers: cache.Indexers{
		"name": func(obj any) ([]string, error) { return []string{obj.(*corev1.ConfigMap).Name}, nil },
	}}
	found := make(chan int)
	for range 2 {
		start(t, f, Loop{Name: "test", Begin: func(c *Controller) Work {
			c.Add("key")
			return Work{
				Watches: []Watch{w},
				Sync: func(context.Context, string) (time.Duration, error) {
					list, err := informer.GetIndexer().ByIndex("name", "a")
					found <- len(list)
					return 0, err
				},
			}
		}})
		if n := <-found; n != 1 {
			t.Errorf("%d objects with the name", n)
		}
	}
}

// TestRun has a loop that is not about keys.
func TestRun(t *testing.T) {
	t.Parallel()
	failure := errors.New("failure")
	c, err := Loop{Name: "test", Begin: func(*Controller) Work {
		return Work{Run: func(context.Context) error { return failure }}
	}}.New(Dependencies{
		Informers:   &factory{},
		NewRecorder: func(string) record.EventRecorder { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); !errors.Is(err, failure) {
		t.Errorf("the loop ended with %v", err)
	}
}

// TestDeletedUnknown has the deletion that an informer found out from a list.
func TestDeletedUnknown(t *testing.T) {
	t.Parallel()
	old := configMap("a")
	if got := Deleted(cache.DeletedFinalStateUnknown{Key: "n/a", Obj: old}); got != old {
		t.Errorf("the deleted object is %v", got)
	}
	var changed []*corev1.ConfigMap
	handler := On(nil, func(old, obj *corev1.ConfigMap) { changed = append(changed, old, obj) }).Handler
	handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "n/a", Obj: old})
	handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "n/b"}) // without a state
	if !slices.Equal(changed, []*corev1.ConfigMap{old, nil}) {
		t.Errorf("the handler was called with %v", changed)
	}
}
