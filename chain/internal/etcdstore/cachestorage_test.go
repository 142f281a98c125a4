package etcdstore

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// watch watches all config maps as a watch cache does.
func (c configMaps) watch(after string) watch.Interface {
	c.Helper()
	w, err := c.storage().Watch(c.Context(), "", apistorage.ListOptions{
		ResourceVersion: after, Recursive: true, ProgressNotify: true,
		Predicate: apistorage.Everything,
	})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(w.Stop)
	return w
}

func (c configMaps) storage() apistorage.Interface {
	c.Helper()
	for s := range c.backend.caches {
		return s.config.Storage
	}
	c.Fatal("no store")
	return nil
}

// event returns the next event of a watch, and false if the watch has ended.
func (c configMaps) event(w watch.Interface) (watch.Event, bool) {
	c.Helper()
	select {
	case event, ok := <-w.ResultChan():
		return event, ok
	case <-time.After(30 * time.Second):
		c.Fatal("no event")
		return watch.Event{}, false
	}
}

func (c configMaps) expectEvent(w watch.Interface, want string) {
	c.Helper()
	event, _ := c.event(w)
	if timed, ok := event.Object.(apistorage.WatchEventWithRecordTime); ok {
		event.Object = timed.Unwrap()
	}
	got := fmt.Sprintf("%s %v", event.Type, event.Object)
	if m, ok := event.Object.(*corev1.ConfigMap); ok {
		got = fmt.Sprintf("%s %s@%s=%s", event.Type, m.Name, m.ResourceVersion, m.Data["value"])
	}
	if got != want {
		c.Fatalf("got %s, want %s", got, want)
	}
}

// A watch cache learns of every change after the version that it begins with, and how far etcd is.
func TestCacheWatch(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	c.put("ns", "a", "before")
	first := c.put("ns", "b", "1")
	w := c.watch(first)
	created := c.put("ns", "c", "2")
	changed := c.put("ns", "a", "3")
	removed := c.remove("ns", "a")
	c.expectEvent(w, "ADDED c@"+created+"=2")
	c.expectEvent(w, "MODIFIED a@"+changed+"=3")
	c.expectEvent(w, "DELETED a@"+removed+"=3")

	if err := c.storage().RequestWatchProgress(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.expectEvent(w, "BOOKMARK @"+removed+"=")
	w.Stop()
	if event, ok := c.event(w); ok {
		t.Errorf("got %v after the end", event)
	}
}

// A watch that etcd or an object ends says why, so that the cache reads all objects again.
func TestCacheWatchFails(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	first := c.put("ns", "a", "1")
	damaged := c.watch(first)
	if _, err := c.backend.client.KV.Put(t.Context(), "/registry/configmaps/ns/b", "x"); err != nil {
		t.Fatal(err)
	}
	event, _ := c.event(damaged)
	if err := apierrors.FromObject(event.Object); event.Type != watch.Error ||
		!apierrors.IsInternalError(err) {
		t.Errorf("got %s, %v for an object that cannot be decoded", event.Type, err)
	}
	if event, ok := c.event(damaged); ok {
		t.Errorf("got %v after the error", event)
	}

	r, err := c.backend.client.KV.Delete(t.Context(), "/registry/configmaps/ns/b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.backend.client.Compact(t.Context(), r.Header.Revision); err != nil {
		t.Fatal(err)
	}
	event, _ = c.event(c.watch(first))
	if err := apierrors.FromObject(event.Object); event.Type != watch.Error ||
		!apierrors.IsResourceExpired(err) {
		t.Errorf("got %s, %v for a compacted version", event.Type, err)
	}
}

// A cache ends although it has not taken all changes that it was told of. A cache that has just
// started takes none for ten milliseconds, which do not pass here before its end.
func TestCacheEndsWithChangesOnTheirWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newConfigMaps(t)
		for s := range c.backend.caches {
			w, err := s.Watch(t.Context(), "/configmaps/", apistorage.ListOptions{
				ResourceVersion: c.put("ns", "first", "0"), Recursive: true,
				Predicate: apistorage.Everything,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
		}
		for i := range 1000 {
			c.put("ns", "a", fmt.Sprint(i))
		}
		c.backend.Stop()
	})
}
