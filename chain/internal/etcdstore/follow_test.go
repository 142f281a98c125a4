package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// follow is a MetadataHandler that sends what it is told as lines of text.
type follow struct {
	record
	blocked sync.Mutex // to hold Done
}

func (f *follow) Restart() { f.record <- "restart" }

func (f *follow) Put(key string, o *metav1.PartialObjectMetadata, _ []byte) {
	f.record <- fmt.Sprintf("put %s %s@%s", key, o.UID, o.ResourceVersion)
}

func (f *follow) Delete(key string, revision int64) {
	f.record <- fmt.Sprintf("delete %s@%d", key, revision)
}

func (f *follow) Done(revision int64) {
	f.blocked.Lock()
	defer f.blocked.Unlock()
	f.record <- fmt.Sprintf("done@%d", revision)
}

func (c configMaps) follow() *follow {
	f := &follow{record: make(record, 10000)}
	ctx, cancel := context.WithCancel(c.Context())
	var running sync.WaitGroup
	running.Go(func() { c.backend.FollowMetadata(ctx, f) })
	c.Cleanup(func() { cancel(); running.Wait() })
	return f
}

func putObject(key, uid string) clientv3.Op {
	return clientv3.OpPut("/registry/"+key,
		`{"apiVersion":"v1","kind":"Thing","metadata":{"uid":"`+uid+`"}}`)
}

func (c configMaps) commit(ops ...clientv3.Op) int64 {
	c.Helper()
	r, err := c.backend.client.KV.Txn(c.Context()).Then(ops...).Commit()
	if err != nil {
		c.Fatal(err)
	}
	return r.Header.Revision
}

// A handler learns of all objects but events, whatever their number, and then of each transaction.
func TestFollowMetadata(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	const n = 2*listPage + 10
	for i := range n {
		c.commit(putObject(fmt.Sprintf("as/%04d", i), "a"))
		c.commit(putObject(fmt.Sprintf("events/%04d", i), "e"))
	}
	last := c.commit(putObject("zs/1", "z"))
	c.commit(clientv3.OpPut("/registry/zs/no-object", "x"),
		clientv3.OpPut("/registry/zs/no-uid", `{"kind":"K","apiVersion":"v1","metadata":{}}`))
	f := c.follow()
	lines := f.next(t, n+3)
	if lines[0] != "restart" || lines[1] != "put as/0000 a@2" ||
		lines[n+1] != fmt.Sprintf("put zs/1 z@%d", last) ||
		lines[n+2] != fmt.Sprintf("done@%d", last+1) {
		t.Errorf("got %q ... %q", lines[:2], lines[n:])
	}
	event := c.commit(putObject("events/more", "e"))
	f.expect(t, fmt.Sprintf("done@%d", event))
	changed := c.commit(putObject("as/0000", "new"), clientv3.OpDelete("/registry/as/0001"),
		putObject("events/more", "e"))
	f.expect(t, fmt.Sprintf("put as/0000 new@%d", changed),
		fmt.Sprintf("delete as/0001@%d", changed), fmt.Sprintf("done@%d", changed))
}

// After the watch has broken, all objects are listed again, without the earlier changes.
func TestFollowMetadataAgain(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	first := c.commit(putObject("as/1", "one"))
	f := c.follow()
	f.expect(t, "restart", fmt.Sprintf("put as/1 one@%d", first), fmt.Sprintf("done@%d", first))

	feed := c.backend.feed
	feed.mu.Lock() // no change is passed on meanwhile
	second := c.commit(putObject("as/2", "two"))
	follower := feed.followers[0]
	f.blocked.Lock() // Done of the list
	follower.reload()
	feed.mu.Unlock()
	f.expect(t, "restart", fmt.Sprintf("put as/1 one@%d", first),
		fmt.Sprintf("put as/2 two@%d", second))
	third := c.commit(clientv3.OpDelete("/registry/as/1"))
	f.blocked.Unlock()
	f.expect(t, fmt.Sprintf("done@%d", second), fmt.Sprintf("delete as/1@%d", third),
		fmt.Sprintf("done@%d", third))
}

// A reset waits until the handlers know of it.
func TestSwitchWaitsForFollowers(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	f := c.follow()
	f.expect(t, "restart", "done@1")
	change := func() (int64, []string, error) {
		return c.commit(putObject("as/1", "one")), []string{"/registry/as/1"}, nil
	}
	f.blocked.Lock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.backend.Switch(ctx, change); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v while the handler is busy", err)
	}
	f.blocked.Unlock()
	if err := c.backend.Switch(t.Context(), change); err != nil {
		t.Error(err)
	}
	f.blocked.Lock()
	defer f.blocked.Unlock()
	got := f.next(t, len(f.record))
	if !strings.HasPrefix(got[len(got)-1], "done@") {
		t.Errorf("the last call of the handler was %s", got[len(got)-1])
	}
}

func TestStoredMetadata(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	at := c.commit(putObject("configmaps/ns/one", "first"),
		putObject("configmaps/other/one", "second"), putObject("configmaps/ns/none", "third"))
	resource := schema.GroupResource{Resource: "configmaps"}
	key := c.backend.Key(resource, "ns", "one")
	m, revision, err := c.backend.Metadata(t.Context(), key)
	if err != nil || m == nil || m.UID != "first" || revision != at ||
		m.ResourceVersion != fmt.Sprint(at) {
		t.Errorf("got %v at %d: %v", m, revision, err)
	}
	if m, _, err := c.backend.Metadata(t.Context(), key+"x"); m != nil || err != nil {
		t.Errorf("got %v, %v for an object that does not exist", m, err)
	}
	keys, err := c.backend.Namesakes(t.Context(), resource, "one")
	if want := []string{key, "configmaps/other/one"}; err != nil ||
		fmt.Sprint(keys) != fmt.Sprint(want) {
		t.Errorf("got %v, %v, want %v", keys, err, want)
	}
	cr := schema.GroupResource{Group: "example.com", Resource: "things"}
	if key := c.backend.Key(cr, "", "one"); key != "example.com/things/one" {
		t.Errorf("key %s", key)
	}
}
