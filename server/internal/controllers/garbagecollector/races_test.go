package garbagecollector_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// audited counts the requests of the collector.
type audited struct {
	audit.Backend
	mu       sync.Mutex
	requests map[string]int // by verb
	agents   map[string]struct{}
}

func (a *audited) ProcessEvents(events ...*auditinternal.Event) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range events {
		if strings.HasSuffix(e.UserAgent, "/generic-garbage-collector") {
			a.requests[e.Verb]++
			a.agents[e.UserAgent] = struct{}{}
		}
	}
	return true
}

func (*audited) Run(<-chan struct{}) error { return nil }
func (*audited) Shutdown()                 {}
func (*audited) String() string            { return "test" }

// fill creates an owner with dependents.
func (c *cluster) fill(owner string, dependents int) []string {
	c.Helper()
	o := c.create(configMaps, owner)
	var names []string
	for i := range dependents {
		names = append(names, fmt.Sprint(owner, "-", i))
		c.create(configMaps, names[i], owned(o, true))
	}
	return names
}

// A dependent costs one request, however it is deleted or orphaned.
func TestRequests(t *testing.T) {
	t.Parallel()
	const dependents = 100
	for _, policy := range []metav1.DeletionPropagation{background, foreground, orphan} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			a := &audited{requests: map[string]int{}, agents: map[string]struct{}{}}
			c := start(t, func(o *server.Options) { o.AuditBackend = a })
			names := c.fill("owner", dependents)
			c.delete(configMaps, "owner", policy)
			c.gone(configMaps, "owner")
			for _, name := range names {
				if policy == orphan {
					c.ownedBy(configMaps, name)
				} else {
					c.gone(configMaps, name)
				}
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			all := 0
			for _, n := range a.requests {
				all += n
			}
			if all > dependents+1 || all < dependents {
				t.Errorf("%d requests for %d dependents: %v", all, dependents, a.requests)
			}
			for agent := range a.agents {
				if !strings.HasPrefix(agent, "kube-controller-manager/v1.") {
					t.Errorf("user agent %q", agent)
				}
			}
		})
	}
}

// Dependents are deleted although somebody changes them all the time.
func TestWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	c := start(t)
	names := c.fill("owner", 10)
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel()
	var written atomic.Int64
	for _, name := range names {
		writing.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, err := c.objects(configMaps).Patch(ctx, name, types.MergePatchType,
					fmt.Appendf(nil, `{"data":{"i":"%d"}}`, i), metav1.PatchOptions{})
				if err != nil {
					return // it is gone
				}
				written.Add(1)
			}
		})
	}
	c.eventually("there are writes", func() bool { return written.Load() > 50 })
	c.delete(configMaps, "owner", foreground)
	c.gone(configMaps, "owner")
	c.gone(configMaps, names...)
}

// Owners come and go while dependents are created. In the end, there are no dependents without an
// owner.
func TestOwnersComeAndGo(t *testing.T) {
	t.Parallel()
	c := start(t)
	var writing sync.WaitGroup
	for i := range 8 {
		writing.Go(func() {
			name := fmt.Sprint("owner-", i)
			for round := range 20 {
				owner := c.create(configMaps, name)
				c.create(configMaps, fmt.Sprint(name, "-before-", round), owned(owner, true))
				policy := []metav1.DeletionPropagation{background, foreground}[round%2]
				c.delete(configMaps, name, policy)
				c.create(configMaps, fmt.Sprint(name, "-after-", round), owned(owner, true))
				c.gone(configMaps, name)
			}
		})
	}
	writing.Wait()
	c.eventually("all dependents are gone", func() bool {
		list, err := c.objects(configMaps).List(t.Context(), metav1.ListOptions{})
		ok(t, err)
		for _, o := range list.Items {
			if len(o.GetOwnerReferences()) > 0 {
				return false
			}
		}
		return true
	})
}

// What the collector was about to delete stays if a reset brings its owner back.
func TestReset(t *testing.T) {
	t.Parallel()
	c := start(t)
	const dependents = 300
	c.fill("owner", dependents)
	waiting := c.create(configMaps, "waiting")
	c.create(configMaps, "blocking", owned(waiting, true), held)
	c.delete(configMaps, "waiting", foreground)
	c.deleting(configMaps, "waiting", "blocking")
	snapshot, err := c.server.Snapshot(t.Context())
	ok(t, err)
	for _, policy := range []metav1.DeletionPropagation{background, foreground, orphan, background} {
		c.delete(configMaps, "owner", policy)
		c.let(configMaps, "blocking")
		c.eventually("the collector works", func() bool {
			list, err := c.objects(configMaps).List(t.Context(), metav1.ListOptions{})
			ok(t, err)
			owned := 0
			for _, o := range list.Items {
				owned += len(o.GetOwnerReferences())
			}
			return owned < dependents-10
		})
		ok(t, c.server.Reset(t.Context(), snapshot))
		c.exist(configMaps, "owner")
		list, err := c.objects(configMaps).List(t.Context(), metav1.ListOptions{})
		ok(t, err)
		found := 0
		for _, o := range list.Items {
			if strings.HasPrefix(o.GetName(), "owner-") && len(o.GetOwnerReferences()) == 1 &&
				o.GetDeletionTimestamp() == nil {
				found++
			}
		}
		if found != dependents {
			t.Fatalf("%s: %d dependents of %d", policy, found, dependents)
		}
		if c.get(configMaps, "waiting") == nil || c.get(configMaps, "blocking") == nil {
			t.Fatalf("%s: an object does not wait any more", policy)
		}
	}
	c.let(configMaps, "blocking")
	c.gone(configMaps, "waiting", "blocking")
}

// A control plane that stops in the middle goes on when it starts again.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept := func(o *server.Options) { o.DataDir = dir }
	run := func(name string, f func(c *cluster)) {
		t.Run(name, func(t *testing.T) { f(start(t, kept)) })
	}
	var names []string
	run("before", func(c *cluster) {
		names = c.fill("fore", 100)
		names = append(names, c.fill("back", 100)...)
		c.fill("orphan", 100)
		owner := c.create(configMaps, "held")
		c.create(configMaps, "blocking", owned(owner, true), held)
		c.delete(configMaps, "held", foreground)
		c.delete(configMaps, "fore", foreground)
		c.delete(configMaps, "back", background)
		c.delete(configMaps, "orphan", orphan)
	})
	t.Run("without the collector", func(t *testing.T) {
		c := start(t, kept, servertest.WithoutControllers)
		if c.get(configMaps, "orphan-99") == nil {
			t.Error("an orphan is gone")
		}
		owner := c.create(configMaps, "gone")
		c.create(configMaps, "late", owned(owner, true))
		c.delete(configMaps, "gone", background)
		names = append(names, "late")
	})
	run("after", func(c *cluster) {
		c.gone(configMaps, names...)
		c.gone(configMaps, "fore", "orphan")
		for i := range 100 {
			c.ownedBy(configMaps, fmt.Sprint("orphan-", i))
		}
		c.exist(configMaps)
		if c.get(configMaps, "held") == nil {
			c.Error("the owner did not wait")
		}
		c.let(configMaps, "blocking")
		c.gone(configMaps, "held")
	})
}

// BenchmarkCollect measures how long 5,000 dependents take to go after their owner.
func BenchmarkCollect(b *testing.B) {
	const dependents = 5000
	for _, policy := range []metav1.DeletionPropagation{background, foreground} {
		b.Run(string(policy), func(b *testing.B) {
			c := start(b)
			for b.Loop() {
				b.StopTimer()
				c.fill("owner", dependents)
				b.StartTimer()
				c.delete(configMaps, "owner", policy)
				c.eventually("the dependents are gone", func() bool {
					list, err := c.objects(configMaps).List(b.Context(), metav1.ListOptions{Limit: 10})
					ok(b, err)
					return len(list.Items) == 1 // the root certificates
				})
			}
		})
	}
}
