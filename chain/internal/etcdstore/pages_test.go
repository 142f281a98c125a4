package etcdstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/util/wait"
)

func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestSortedKeys(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var keys sortedKeys
	var want []string
	for range 20_000 {
		key := fmt.Sprint(random.IntN(5000))
		at, there := slices.BinarySearch(want, key)
		if rank := keys.rank(key); rank != at {
			t.Fatalf("%d keys are said to be before %s, not %d", rank, key, at)
		}
		if random.IntN(5) == 0 {
			if keys.remove(key) != there {
				t.Fatalf("%s: there was one: %t", key, there)
			}
			if there {
				want = slices.Delete(want, at, at+1)
			}
		} else {
			if keys.insert(key) == there {
				t.Fatalf("%s: there was one: %t", key, there)
			}
			if !there {
				want = slices.Insert(want, at, key)
			}
		}
	}
	if got := slices.Concat(keys.chunks...); !slices.Equal(got, want) || keys.length != len(want) {
		t.Fatalf("got %d keys, %d of them in order, want %d", keys.length, len(got), len(want))
	}
	for rank, key := range want {
		if got := keys.at(rank); got != key {
			t.Fatalf("got %s at %d, want %s", got, rank, key)
		}
	}
	if got := keys.at(len(want)); got != "" {
		t.Fatalf("got %s after the end", got)
	}
	for _, key := range want {
		keys.remove(key)
	}
	if keys.length != 0 || keys.rank("1") != 0 || keys.at(0) != "" {
		t.Error("something is left")
	}
}

// counted returns a pager, and a prefix whose counter knows n keys.
func (c configMaps) counted(n int) (pager, string) {
	c.Helper()
	const prefix = "/registry/configmaps/many/"
	for i := range n {
		c.put("many", fmt.Sprintf("c-%05d", i), "")
	}
	p := c.backend.client.Kubernetes.(pager)
	if _, err := p.List(c.Context(), prefix, etcdkubernetes.ListOptions{Limit: 1}); err != nil {
		c.Fatal(err)
	}
	counter := p.counters.of(prefix)
	if counter == nil {
		c.Fatal("nobody counts the keys")
	}
	waitUntil(c.T, "the keys are known", func() bool {
		_, known := counter.latest()
		return known
	})
	return p, prefix
}

// expectPage returns a page, which must be as etcd itself reads it.
func (c configMaps) expectPage(
	p pager, prefix string, opts etcdkubernetes.ListOptions,
) etcdkubernetes.ListResponse {
	c.Helper()
	var got etcdkubernetes.ListResponse
	waitUntil(c.T, "page after "+opts.Continue, func() bool { // on a busy machine, not at once
		page, ok, err := p.counters.of(prefix).page(c.Context(), opts)
		if err != nil {
			c.Fatal(err)
		}
		got = page
		return ok
	})
	if opts.Revision == 0 {
		opts.Revision = got.Revision
	}
	want, err := p.Interface.List(c.Context(), prefix, opts)
	if err != nil {
		c.Fatal(err)
	}
	if got.Count != want.Count || len(got.Kvs) != len(want.Kvs) {
		c.Fatalf("page after %q: got %d of %d keys, want %d of %d", opts.Continue, len(got.Kvs),
			got.Count, len(want.Kvs), want.Count)
	}
	for i, kv := range got.Kvs {
		if string(kv.Key) != string(want.Kvs[i].Key) || kv.ModRevision != want.Kvs[i].ModRevision {
			c.Fatalf("got %s at %d, want %s at %d", kv.Key, kv.ModRevision, want.Kvs[i].Key,
				want.Kvs[i].ModRevision)
		}
	}
	return got
}

// Pages have the keys and the counts that they have without a counter, while keys come and go.
func TestPagesOfManyKeys(t *testing.T) { anywhere(t, testPagesOfManyKeys) }

func testPagesOfManyKeys(_ *testing.T, c configMaps) {
	p, prefix := c.counted(2500)
	end := make(chan struct{})
	var changing sync.WaitGroup
	changing.Go(func() {
		random := rand.New(rand.NewPCG(1, 2))
		for {
			select {
			case <-end:
				return
			default:
			}
			name := fmt.Sprintf("c-%05d", random.IntN(4000))
			if random.IntN(2) == 0 {
				c.put("many", name, "")
			} else {
				c.remove("many", name)
			}
		}
	})
	defer changing.Wait()
	defer close(end)
	for range 20 {
		opts := etcdkubernetes.ListOptions{Limit: 300}
		for {
			page := c.expectPage(p, prefix, opts)
			if page.Count == int64(len(page.Kvs)) {
				break
			}
			opts.Revision = page.Revision
			if len(page.Kvs) > 0 {
				opts.Continue = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
			}
		}
	}
}

// The rest of a page whose first key has been deleted meanwhile is counted, too.
func TestPagesAfterDeletions(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	p, prefix := c.counted(2000)
	first := c.expectPage(p, prefix, etcdkubernetes.ListOptions{Limit: 100})
	for i := range 1900 {
		c.remove("many", fmt.Sprintf("c-%05d", i))
	}
	rest := etcdkubernetes.ListOptions{
		Limit: 100, Continue: prefix + "c-00100", Revision: first.Revision,
	}
	if page := c.expectPage(p, prefix, rest); page.Count != 1900 || len(page.Kvs) != 100 {
		t.Errorf("got %d of %d keys, want 100 of 1900", len(page.Kvs), page.Count)
	}
	rest.Revision = 0
	if page := c.expectPage(p, prefix, rest); page.Count != 100 || len(page.Kvs) != 100 {
		t.Errorf("got %d of %d keys, want 100 of 100", len(page.Kvs), page.Count)
	}
}

// Of revisions before those that a counter remembers, etcd counts the keys.
func TestPagesOfForgottenRevisions(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	p, prefix := c.counted(2000)
	first := c.expectPage(p, prefix, etcdkubernetes.ListOptions{Limit: 100})
	for range changesKept/2 + 1 {
		c.put("many", "other", "")
		c.remove("many", "other")
	}
	opts := etcdkubernetes.ListOptions{Limit: 100, Revision: first.Revision}
	waitUntil(t, "the revision is forgotten", func() bool {
		_, ok, err := p.counters.of(prefix).page(t.Context(), opts)
		return !ok && err == nil
	})
	page, err := p.List(t.Context(), prefix, opts)
	if err != nil || page.Count != 2000 || len(page.Kvs) != 100 {
		t.Errorf("got %d of %d keys, %v, want 100 of 2000", len(page.Kvs), page.Count, err)
	}
}

// A counter whose watch ends does too, and the next page starts another one.
func TestCounterEnds(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	p, prefix := c.counted(2000)
	counter := p.counters.of(prefix)
	counter.mu.Lock()
	counter.used = counter.used.Add(-counterKept)
	counter.mu.Unlock()
	c.put("many", "other", "")
	waitUntil(t, "the counter ends", func() bool { return p.counters.of(prefix) == nil })
	if _, err := p.List(t.Context(), prefix, etcdkubernetes.ListOptions{Limit: 1}); err != nil {
		t.Fatal(err)
	}
	if p.counters.of(prefix) == nil {
		t.Error("nobody counts the keys")
	}
}
