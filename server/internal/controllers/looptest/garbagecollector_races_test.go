package looptest

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
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// garbageAudit counts the requests of the collector.
type garbageAudit struct {
	audit.Backend
	mu       sync.Mutex
	requests map[string]int // by verb
	agents   map[string]struct{}
}

func (a *garbageAudit) ProcessEvents(events ...*auditinternal.Event) bool {
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

// count returns how many requests there have been.
func (a *garbageAudit) count() (all int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.requests {
		all += n
	}
	return all
}

func (*garbageAudit) Run(<-chan struct{}) error { return nil }
func (*garbageAudit) Shutdown()                 {}
func (*garbageAudit) String() string            { return "test" }

// fill creates an owner with dependents.
func (c *garbage) fill(owner string, dependents int) []string {
	c.Helper()
	o := c.create(c.configMaps, owner)
	var names []string
	for i := range dependents {
		names = append(names, fmt.Sprint(owner, "-", i))
		c.create(c.configMaps, names[i], c.owned(o, true))
	}
	return names
}

// A dependent costs one request, however it is deleted or orphaned.
func TestGarbageCollectorRequests(t *testing.T) {
	t.Parallel()
	const dependents = 100
	for _, policy := range []metav1.DeletionPropagation{background, foreground, orphan} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			a := &garbageAudit{requests: map[string]int{}, agents: map[string]struct{}{}}
			c := startGarbageCollector(t, func(o *server.Options) { o.AuditBackend = a })
			names := c.fill("owner", dependents)
			c.delete(c.configMaps, "owner", policy)
			c.gone(c.configMaps, "owner")
			for _, name := range names {
				if policy == orphan {
					c.ownedBy(c.configMaps, name)
				} else {
					c.gone(c.configMaps, name)
				}
			}
			var all int
			// A request is recorded after its effect can be seen.
			c.eventually("each dependent has cost a request", func() bool {
				all = a.count()
				return all >= dependents
			})
			a.mu.Lock()
			defer a.mu.Unlock()
			if all > dependents+1 {
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
func TestGarbageCollectorWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	c := garbageCollectorShared(t)
	names := c.fill("owner", 10)
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel()
	var written atomic.Int64
	for _, name := range names {
		writing.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, err := c.objects(c.configMaps).Patch(ctx, name, types.MergePatchType,
					fmt.Appendf(nil, `{"data":{"i":"%d"}}`, i), metav1.PatchOptions{})
				if err != nil {
					return // it is gone
				}
				written.Add(1)
			}
		})
	}
	c.eventually("there are writes", func() bool { return written.Load() > 50 })
	c.delete(c.configMaps, "owner", foreground)
	c.gone(c.configMaps, "owner")
	c.gone(c.configMaps, names...)
}

// Owners come and go while dependents are created. In the end, there are no dependents without an
// owner.
func TestGarbageCollectorOwnersComeAndGo(t *testing.T) {
	t.Parallel()
	c := garbageCollectorShared(t)
	var writing sync.WaitGroup
	for i := range 8 {
		writing.Go(func() {
			name := fmt.Sprint("owner-", i)
			for round := range 20 {
				owner := c.create(c.configMaps, name)
				c.create(c.configMaps, fmt.Sprint(name, "-before-", round), c.owned(owner, true))
				policy := []metav1.DeletionPropagation{background, foreground}[round%2]
				c.delete(c.configMaps, name, policy)
				c.create(c.configMaps, fmt.Sprint(name, "-after-", round), c.owned(owner, true))
				c.gone(c.configMaps, name)
			}
		})
	}
	writing.Wait()
	c.eventually("all dependents are gone", func() bool {
		list, err := c.objects(c.configMaps).List(t.Context(), metav1.ListOptions{})
		workloadtest.OK(t, err)
		for _, o := range list.Items {
			if len(o.GetOwnerReferences()) > 0 {
				return false
			}
		}
		return true
	})
}

// What the collector was about to delete stays if a reset brings its owner back.
func TestGarbageCollectorReset(t *testing.T) {
	t.Parallel()
	c := startGarbageCollector(t)
	const dependents = 300
	c.fill("owner", dependents)
	waiting := c.create(c.configMaps, "waiting")
	c.create(c.configMaps, "blocking", c.owned(waiting, true), c.held)
	c.delete(c.configMaps, "waiting", foreground)
	c.deleting(c.configMaps, "waiting", "blocking")
	snapshot, err := c.server.Snapshot(t.Context())
	workloadtest.OK(t, err)
	for _, policy := range []metav1.DeletionPropagation{background, foreground, orphan, background} {
		c.delete(c.configMaps, "owner", policy)
		c.let(c.configMaps, "blocking")
		c.eventually("the collector works", func() bool {
			list, err := c.objects(c.configMaps).List(t.Context(), metav1.ListOptions{})
			workloadtest.OK(t, err)
			owned := 0
			for _, o := range list.Items {
				owned += len(o.GetOwnerReferences())
			}
			return owned < dependents-10
		})
		workloadtest.OK(t, c.server.Reset(t.Context(), snapshot))
		c.exist(c.configMaps, "owner")
		list, err := c.objects(c.configMaps).List(t.Context(), metav1.ListOptions{})
		workloadtest.OK(t, err)
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
		if c.get(c.configMaps, "waiting") == nil || c.get(c.configMaps, "blocking") == nil {
			t.Fatalf("%s: an object does not wait any more", policy)
		}
	}
	c.let(c.configMaps, "blocking")
	c.gone(c.configMaps, "waiting", "blocking")
}

// A control plane that stops in the middle goes on when it starts again.
func TestGarbageCollectorRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept := func(o *server.Options) { o.DataDir = dir }
	run := func(name string, f func(c *garbage)) {
		t.Run(name, func(t *testing.T) { f(startGarbageCollector(t, kept)) })
	}
	var names []string
	run("before", func(c *garbage) {
		names = c.fill("fore", 100)
		names = append(names, c.fill("back", 100)...)
		c.fill("orphan", 100)
		owner := c.create(c.configMaps, "held")
		c.create(c.configMaps, "blocking", c.owned(owner, true), c.held)
		c.delete(c.configMaps, "held", foreground)
		c.delete(c.configMaps, "fore", foreground)
		c.delete(c.configMaps, "back", background)
		c.delete(c.configMaps, "orphan", orphan)
	})
	t.Run("without the collector", func(t *testing.T) {
		c := startGarbageCollector(t, kept, servertest.WithoutControllers)
		if c.get(c.configMaps, "orphan-99") == nil {
			t.Error("an orphan is gone")
		}
		owner := c.create(c.configMaps, "gone")
		c.create(c.configMaps, "late", c.owned(owner, true))
		c.delete(c.configMaps, "gone", background)
		names = append(names, "late")
	})
	run("after", func(c *garbage) {
		c.gone(c.configMaps, names...)
		c.gone(c.configMaps, "fore", "orphan")
		for i := range 100 {
			c.ownedBy(c.configMaps, fmt.Sprint("orphan-", i))
		}
		c.exist(c.configMaps)
		if c.get(c.configMaps, "held") == nil {
			c.Error("the owner did not wait")
		}
		c.let(c.configMaps, "blocking")
		c.gone(c.configMaps, "held")
	})
}

// BenchmarkCollect measures how long 5,000 dependents take to go after their owner.
func BenchmarkGarbageCollectorCollect(b *testing.B) {
	const dependents = 5000
	for _, policy := range []metav1.DeletionPropagation{background, foreground} {
		b.Run(string(policy), func(b *testing.B) {
			c := startGarbageCollector(b)
			for b.Loop() {
				b.StopTimer()
				c.fill("owner", dependents)
				b.StartTimer()
				c.delete(c.configMaps, "owner", policy)
				c.eventually("the dependents are gone", func() bool {
					list, err := c.objects(c.configMaps).List(b.Context(), metav1.ListOptions{Limit: 10})
					workloadtest.OK(b, err)
					return len(list.Items) == 1 // the root certificates
				})
			}
		})
	}
}
