package etcdstore

import (
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/chain/history"
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

func TestRevisionsAreCapped(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	var capped revisionCap
	capped.start(onFeedStream(c.backend.client.Client), &c.backend.writers, 20)
	defer capped.stop()
	first := c.commit(putObject("configmaps/default/one", "a"))
	last := c.commit(putObject("configmaps/default/one", "b"))
	capped.reached(last) // far too early
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
		capped.reached(last)
	}
	capped.running.Wait()
	if err := at(first); err == nil {
		t.Error("old revisions are not removed")
	}
	if err := at(last - 15); err != nil {
		t.Errorf("too many revisions are removed: %v", err)
	}
}
