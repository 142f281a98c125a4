package etcdstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/embed"
)

var configMapCodec = scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion)

// configMaps is a store of config maps in an etcd of its own.
type configMaps struct {
	*testing.T
	backend *Backend
}

func newConfigMaps(t *testing.T) configMaps {
	t.Helper()
	etcd, err := embed.Start(t.Context(), embed.Options{Dir: t.TempDir(), Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := etcd.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return newConfigMapsIn(t, etcd.Client())
}

func newConfigMapsIn(t *testing.T, client *clientv3.Client) configMaps {
	t.Helper()
	backend := New(Config{Client: client, HistoryKept: time.Hour})
	t.Cleanup(backend.Stop)
	resources := Resources{
		Backend: backend,
		CodecOf: func(schema.GroupResource, runtime.Object) (Codec, error) {
			return Codec{Codec: configMapCodec, Versioner: corev1.SchemeGroupVersion}, nil
		},
		PathOf: func(r schema.GroupResource) string { return "/" + r.Resource + "/" },
	}
	options, err := resources.GetRESTOptions(schema.GroupResource{Resource: "configmaps"},
		&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	key := func(o runtime.Object) (string, error) {
		return apistorage.NamespaceKeyFunc("/configmaps/", o)
	}
	_, _, err = options.Decorator(options.StorageConfig, options.ResourcePrefix, key,
		func() runtime.Object { return &corev1.ConfigMap{} },
		func() runtime.Object { return &corev1.ConfigMapList{} },
		apistorage.DefaultNamespaceScopedAttr, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return configMaps{t, backend}
}

// put writes a config map and returns its resource version.
func (c configMaps) put(namespace, name, value string) string {
	c.Helper()
	data, err := runtime.Encode(configMapCodec, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"value": value},
	})
	if err != nil {
		c.Fatal(err)
	}
	key := "/registry/configmaps/" + namespace + "/" + name
	r, err := c.backend.client.KV.Put(c.Context(), key, string(data))
	if err != nil {
		c.Fatal(err)
	}
	return fmt.Sprint(r.Header.Revision)
}

// remove deletes a config map and returns the resource version of the deletion.
func (c configMaps) remove(namespace, name string) string {
	c.Helper()
	key := "/registry/configmaps/" + namespace + "/" + name
	r, err := c.backend.client.KV.Delete(c.Context(), key)
	if err != nil {
		c.Fatal(err)
	}
	return fmt.Sprint(r.Header.Revision)
}

// record is a handler that sends what it is told as a line of text.
type record chan string

func (r record) OnAdd(obj any, initial bool) {
	how := "added"
	if initial {
		how = "listed"
	}
	r.send(how, obj)
}

func (r record) OnUpdate(_, obj any) { r.send("updated", obj) }

func (r record) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		r.send("gone", unknown.Obj)
		return
	}
	r.send("deleted", obj)
}

func (r record) send(how string, obj any) {
	m := obj.(*corev1.ConfigMap)
	r <- fmt.Sprintf("%s %s/%s@%s=%s", how, m.Namespace, m.Name, m.ResourceVersion, m.Data["value"])
}

// next returns the next n lines.
func (r record) next(t *testing.T, n int) []string {
	t.Helper()
	var lines []string
	for range n {
		select {
		case line := <-r:
			lines = append(lines, line)
		case <-time.After(30 * time.Second):
			t.Fatalf("timed out after %q", lines)
		}
	}
	return lines
}

func (r record) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := r.next(t, len(want)); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func (r record) expectInAnyOrder(t *testing.T, want ...string) {
	t.Helper()
	got := slices.Sorted(slices.Values(r.next(t, len(want))))
	if want := slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func run(t *testing.T, informer cache.SharedIndexInformer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { informer.RunWithContext(ctx); close(ended) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

func TestInformer(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	version := c.put("default", "first", "1")
	informer := c.backend.Informer(&corev1.ConfigMap{}, "")
	handler := make(record, 100)
	first, err := informer.AddEventHandler(handler)
	if err != nil {
		t.Fatal(err)
	}
	if informer.HasSynced() || first.HasSynced() {
		t.Error("synced before it runs")
	}
	stop := run(t, informer)
	handler.expect(t, "listed default/first@"+version+"=1")
	<-first.HasSyncedChecker().Done()

	second := c.put("other", "second", "2")
	changed := c.put("default", "first", "3")
	deleted := c.remove("default", "first")
	c.remove("default", "never-existed")
	third := c.put("other", "third", "")
	handler.expect(t, "added other/second@"+second+"=2", "updated default/first@"+changed+"=3",
		"deleted default/first@"+deleted+"=3", "added other/third@"+third+"=")
	if rv := informer.LastSyncResourceVersion(); rv != third {
		t.Errorf("synced to %s, want %s", rv, third)
	}
	if in, err := informer.GetIndexer().ByIndex(cache.NamespaceIndex, "other"); len(in) != 2 {
		t.Errorf("objects in the namespace: %v, %v", in, err)
	}

	late := make(record, 100)
	handle, err := informer.AddEventHandler(late)
	if err != nil {
		t.Fatal(err)
	}
	<-handle.HasSyncedChecker().Done()
	if len(late) != 2 {
		t.Errorf("a late handler got %d objects", len(late))
	}
	if err := informer.RemoveEventHandler(handle); err != nil {
		t.Error(err)
	}
	fourth := c.put("other", "fourth", "")
	handler.expect(t, "added other/fourth@"+fourth+"=")
	if len(late) != 2 {
		t.Error("a removed handler was called")
	}

	stop()
	if err := informer.RemoveEventHandler(first); err != nil {
		t.Error(err)
	}
	handle, err = informer.AddEventHandler(late)
	if err == nil || handle == nil || !informer.IsStopped() {
		t.Errorf("a handler was added to a stopped informer: %v", err)
	}
}

// An informer that is restricted to a name gets only the objects with this name.
func TestInformerOfOneName(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	c.put("a", "other", "")
	listed := c.put("a", "wanted", "")
	informer := c.backend.Informer(&corev1.ConfigMap{}, "wanted")
	handler := make(record, 100)
	if _, err := informer.AddEventHandler(handler); err != nil {
		t.Fatal(err)
	}
	run(t, informer)
	handler.expect(t, "listed a/wanted@"+listed+"=")
	c.put("b", "other", "")
	c.put("b", "un-wanted", "")
	added := c.put("b", "wanted", "")
	handler.expect(t, "added b/wanted@"+added+"=")
}

// A broken watch may have missed any change. Afterwards the informer tells its handlers the
// difference, and applies the changes that came in while it listed.
func TestInformerListsAgain(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	same, old, gone := c.put("a", "same", ""), c.put("a", "old", "1"), c.put("a", "gone", "")
	informer := c.backend.Informer(&corev1.ConfigMap{}, "")
	handler := make(record, 100)
	if _, err := informer.AddEventHandler(handler); err != nil {
		t.Fatal(err)
	}
	// The informer runs without the feed, so it misses everything.
	informer.reader = c.backend.storeOf(informer.kind).reader
	informer.prefix = informer.reader.prefix
	informer.read = func() {}
	if err := informer.list(t.Context()); err != nil {
		t.Fatal(err)
	}
	handler.expectInAnyOrder(t, "listed a/same@"+same+"=", "listed a/old@"+old+"=1",
		"listed a/gone@"+gone+"=")

	c.remove("a", "gone")
	updated := c.put("a", "old", "2")
	if err := informer.list(t.Context()); err != nil {
		t.Fatal(err)
	}
	handler.expectInAnyOrder(t, "updated a/old@"+updated+"=2", "gone a/gone@"+gone+"=")

	informer.reload()
	events := c.backend.client.Watcher.Watch(t.Context(), "/registry/configmaps/a/new")
	added := c.put("a", "new", "")
	for _, e := range (<-events).Events {
		informer.handle(e)
	}
	if len(handler) > 0 {
		t.Errorf("a change was passed on while the informer lists: %q", <-handler)
	}
	if !informer.beginList() {
		t.Error("no list is wanted")
	}
	if err := informer.list(t.Context()); err != nil {
		t.Fatal(err)
	}
	handler.expect(t, "added a/new@"+added+"=")
	if len(handler) > 0 {
		t.Errorf("a change was passed on twice: %q", <-handler)
	}
}

// A kind that the server does not serve has no objects.
func TestInformerOfAKindWithoutStore(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	informer := c.backend.Informer(&corev1.Pod{}, "")
	run(t, informer)
	<-informer.HasSyncedChecker().Done()
	if keys := informer.GetStore().ListKeys(); len(keys) > 0 {
		t.Errorf("objects: %v", keys)
	}
}

// Controllers remove their handlers while the informer stops.
func TestHandlersAreRemovedWhileInformerStops(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	for range 20 {
		informer := c.backend.Informer(&corev1.ConfigMap{}, "")
		stop := run(t, informer)
		var removing sync.WaitGroup
		for range 10 {
			handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{})
			if err != nil {
				t.Fatal(err)
			}
			removing.Go(func() {
				if err := informer.RemoveEventHandler(handle); err != nil {
					t.Error(err)
				}
			})
		}
		stop()
		removing.Wait()
	}
}

// A reset changes several objects at one revision.
func TestInformerSeesAllChangesOfOneRevision(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	c.put("default", "a", "1")
	c.put("default", "b", "1")
	informer := c.backend.Informer(&corev1.ConfigMap{}, "")
	running, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { informer.RunWithContext(running) })
	t.Cleanup(func() { stop(); done.Wait() })
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("not synced")
	}
	var ops []clientv3.Op
	for _, name := range []string{"a", "b"} {
		ops = append(ops, clientv3.OpDelete("/registry/configmaps/default/"+name))
	}
	if _, err := c.backend.client.KV.Txn(t.Context()).Then(ops...).Commit(); err != nil {
		t.Fatal(err)
	}
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			return len(informer.GetStore().List()) == 0, nil
		}); err != nil {
		t.Fatalf("the informer still has %v", informer.GetStore().ListKeys())
	}
}
