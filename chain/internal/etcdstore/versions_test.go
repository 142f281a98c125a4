package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/chain/internal/writers"
	"github.com/kinproc/kinproc/embed"
)

// Versions that somebody else wrote have no writer, and what is compacted is said to be missing.
func TestVersionsAfterCompaction(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	of := VersionsOf{
		Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: "default", Name: "one",
		Limit: 10,
	}
	put := func(uid string) int64 { return c.commit(putObject("configmaps/default/one", uid)) }
	first := put("a")
	second := put("b")
	c.commit(putObject("configmaps/default/two", "other"))
	third := put("c")
	check := func(compacted bool, want ...string) {
		t.Helper()
		h, err := c.backend.Versions(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range h.Versions {
			if v.Writer != nil || v.Time != nil {
				t.Errorf("revision %d has a writer", v.Revision)
			}
			got = append(got, fmt.Sprint(v.Event, v.Revision, len(v.Changes)))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || h.Compacted != compacted {
			t.Errorf("versions %s, compacted %t, want %s", got, h.Compacted, want)
		}
	}
	check(false, fmt.Sprint(history.Created, first, 0), fmt.Sprint(history.Updated, second, 1),
		fmt.Sprint(history.Updated, third, 1))
	if _, err := c.backend.client.KV.Compact(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	check(true, fmt.Sprint(history.Updated, third, 1))
	if _, err := c.backend.VersionAt(t.Context(), of, first); !errors.Is(err, ErrNotKept) {
		t.Errorf("at a compacted revision: %v", err)
	}
	if _, err := c.backend.client.KV.Compact(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	check(true, fmt.Sprint(history.Updated, third, 0)) // what is there
	deleted := c.commit(clientv3.OpDelete("/registry/configmaps/default/one"))
	check(true, fmt.Sprint(history.Deleted, deleted, 0))
}

// anywhere calls test with config maps in an etcd of this process, and in one behind a socket.
func anywhere(t *testing.T, test func(t *testing.T, c configMaps)) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) { test(t, newConfigMaps(t)) })
	t.Run("elsewhere", func(t *testing.T) {
		etcd, err := embed.Start(t.Context(), embed.Options{
			Dir: t.TempDir(), Ephemeral: true, ListenClient: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		client, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(client.Close(), etcd.Stop(context.Background())); err != nil {
				t.Error(err)
			}
		})
		test(t, newConfigMapsIn(t, client))
	})
}

// The newest versions of an object with thousands of them, among many objects, are found whether
// they are recent or old.
func TestVersionsAmongMany(t *testing.T) {
	anywhere(t, func(t *testing.T, c configMaps) {
		label := func(name, app string) {
			data, err := runtime.Encode(configMapCodec, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, Labels: map[string]string{"app": app},
			}})
			if err != nil {
				t.Fatal(err)
			}
			c.commit(clientv3.OpPut("/registry/configmaps/default/"+name, string(data)))
		}
		label("old", "web")
		label("old", "db")
		label("gone", "web")
		c.remove("default", "gone")
		const objects, rounds = 500, 5
		for i := range rounds * objects {
			c.put("default", fmt.Sprint("many-", i%objects), fmt.Sprint(i))
			c.put("default", "busy", fmt.Sprint(i))
		}
		web, err := labels.Parse("app=web")
		if err != nil {
			t.Fatal(err)
		}
		resource := schema.GroupResource{Resource: "configmaps"}
		for name, test := range map[string]struct {
			of   VersionsOf
			want int
			last string
			more bool
		}{
			"all":        {VersionsOf{Resource: resource, Limit: 10}, 10, "busy", true},
			"busy":       {VersionsOf{Resource: resource, Name: "busy", Limit: 100}, 100, "busy", true},
			"one":        {VersionsOf{Resource: resource, Name: "many-3", Limit: 100}, rounds, "many-3", false},
			"exactly":    {VersionsOf{Resource: resource, Name: "many-3", Limit: rounds}, rounds, "many-3", false},
			"not all":    {VersionsOf{Resource: resource, Name: "many-3", Limit: 3}, 3, "many-3", true},
			"old":        {VersionsOf{Resource: resource, Name: "old", Limit: 100}, 2, "old", false},
			"label":      {VersionsOf{Resource: resource, Labels: web, Limit: 100}, 3, "gone", false},
			"everything": {VersionsOf{Limit: 1000}, 1000, "busy", true},
		} {
			test.of.Namespace = "default"
			h, err := c.backend.Versions(t.Context(), test.of)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if n := len(h.Versions); n != test.want || h.Versions[n-1].Name != test.last ||
				h.More != test.more || h.Compacted {
				t.Errorf("%s: %d versions, more: %t, compacted: %t", name, n, h.More, h.Compacted)
			}
			if !slices.IsSortedFunc(h.Versions, func(a, b history.Version) int {
				return cmp.Compare(a.Revision, b.Revision)
			}) {
				t.Errorf("%s: not in order", name)
			}
		}
	})
}

// However large the objects are, a history is not.
func TestVersionsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	for range 2 {
		for i := range 15 {
			c.put("default", fmt.Sprint("large-", i), strings.Repeat("x", 1<<20))
			c.remove("default", fmt.Sprint("large-", i)) // its version has the object before it
		}
	}
	h, err := c.backend.Versions(t.Context(), VersionsOf{Namespace: "default", Limit: history.MaxLimit})
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, v := range h.Versions {
		size += sizeOf(&v)
	}
	if size > maxHistoryBytes || size < maxHistoryBytes/2 || !h.More {
		t.Errorf("%d versions have %d bytes, more: %t", len(h.Versions), size, h.More)
	}
}

// Whoever follows gets what there is and then what comes, and the end of its context ends it.
func TestFollowVersions(t *testing.T) {
	anywhere(t, func(t *testing.T, c configMaps) {
		c.put("default", "one", "a")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen, ended := make(chan history.Version), make(chan error)
		go func() {
			ended <- c.backend.FollowVersions(ctx, VersionsOf{
				Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: "default", Limit: 10,
			}, func(v history.Version) error {
				select {
				case seen <- v:
				case <-ctx.Done():
				}
				return nil
			})
		}()
		for i, want := range []string{history.Created, history.Updated, history.Deleted} {
			if v := <-seen; v.Event != want || i == 1 && len(v.Changes) != 1 {
				t.Errorf("%s with %d changes, want %s", v.Event, len(v.Changes), want)
			}
			switch i {
			case 0:
				c.put("default", "one", "b")
			case 1:
				c.remove("default", "one")
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// compacted is a compactor that has compacted a revision.
type compacted int64

func (c compacted) CompactRevision() int64 { return int64(c) }
func (c compacted) Stop()                  {}

// What the compactor has removed needs no writers.
func TestWritersOfCompactedRevisionsAreForgotten(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	c.backend.compactor.Stop()
	r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces", nil)
	r = r.WithContext(genericapirequest.WithUser(r.Context(), &user.DefaultInfo{Name: "jane"}))
	writers.WithSender(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for revision := int64(1); revision <= 10_000; revision++ {
			if revision == 5_000 {
				c.backend.compactor = compacted(4_000)
			}
			c.backend.wrote(r.Context(), revision, 1)
		}
	})).ServeHTTP(nil, r)
	for revision, want := range map[int64]bool{1: false, 2_000: false, 4_000: true, 10_000: true} {
		if w, _ := c.backend.writers.Of(revision, 1); (w != nil) != want {
			t.Errorf("the writer of revision %d: %+v", revision, w)
		}
	}
}

func TestRevisionsAreCapped(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	var capped revisionCap
	capped.start(onFeedStream(c.backend.client.Client), &c.backend.writers, nil, 20, 1000)
	defer capped.stop()
	first := c.commit(putObject("configmaps/default/one", "a"))
	last := c.commit(putObject("configmaps/default/one", "b"))
	capped.reached(last, 1) // far too early
	capped.running.Wait()
	at := func(revision int64) error {
		_, err := c.backend.client.KV.Get(t.Context(), "x", clientv3.WithRev(revision))
		return err
	}
	if err := at(first); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		last = c.commit(putObject("configmaps/default/one", "c"))
		capped.reached(last, 1)
	}
	capped.running.Wait()
	if err := at(first); err == nil {
		t.Error("old revisions are not removed")
	}
	if err := at(last - 15); err != nil {
		t.Errorf("too many revisions are removed: %v", err)
	}
	before := last
	for range 12 { // few, but large
		last = c.commit(putObject("configmaps/default/one", "c"))
		capped.reached(last, 100)
	}
	capped.running.Wait()
	if err := at(before); err == nil {
		t.Error("large revisions are not removed")
	}
	if err := at(last - 5); err != nil {
		t.Errorf("too many large revisions are removed: %v", err)
	}
}
