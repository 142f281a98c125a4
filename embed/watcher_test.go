package embed_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/kinproc/kinproc/embed"
)

// clients returns the client that calls the member directly, and one that calls it over a socket.
func clients(t *testing.T) (direct, remote *clientv3.Client) {
	t.Helper()
	e := start(t, embed.Options{Dir: filepath.Join(t.TempDir(), "data"), ListenClient: true})
	remote, err := clientv3.New(clientv3.Config{Endpoints: e.Endpoints(), DialTimeout: time.Minute})
	must(t, err)
	t.Cleanup(func() { remote.Close() })
	return e.Client(), remote
}

// describe returns all that a client can see of a response, but the time that a term takes.
func describe(r clientv3.WatchResponse) string {
	s := fmt.Sprintf("at %d created=%t canceled=%t compacted=%d progress=%t err=%v member=%d/%d",
		r.Header.GetRevision(), r.Created, r.Canceled, r.CompactRevision, r.IsProgressNotify(), r.Err(),
		r.Header.GetClusterId(), r.Header.GetMemberId())
	for _, e := range r.Events {
		s += fmt.Sprintf("\n  %s %v before %v", e.Type, e.Kv, e.PrevKv)
	}
	return s
}

// follow describes what a watch tells until a revision. How the events are spread over responses
// depends on when the watch catches up.
func follow(changes clientv3.WatchChan, until int64) (all []string) {
	for r := range changes {
		last := r.Header.GetRevision()
		events := r.Events
		if len(events) == 0 {
			all = append(all, describe(r))
		}
		for _, e := range events {
			one := r
			one.Header.Revision, one.Events = e.Kv.ModRevision, []*clientv3.Event{e}
			all = append(all, describe(one))
		}
		if last >= until {
			break
		}
	}
	return all
}

// TestWatchesAsRemoteClients compares watches of the member's own client with those of a client
// that is connected to it.
func TestWatchesAsRemoteClients(t *testing.T) {
	t.Parallel()
	direct, remote := clients(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := direct.Put(ctx, "/a/1", "old")
	must(t, err)
	watches := map[string][]clientv3.OpOption{
		"one key":         {},
		"prefix":          {clientv3.WithPrefix()},
		"previous values": {clientv3.WithPrefix(), clientv3.WithPrevKV()},
		"from a revision": {clientv3.WithPrefix(), clientv3.WithRev(2)},
		"from a key on":   {clientv3.WithFromKey()},
		"a range":         {clientv3.WithRange("/a/3")},
		"without puts":    {clientv3.WithPrefix(), clientv3.WithFilterPut()},
		"without deletes": {clientv3.WithPrefix(), clientv3.WithFilterDelete()},
		"created":         {clientv3.WithPrefix(), clientv3.WithCreatedNotify()},
	}
	type pair struct{ direct, remote clientv3.WatchChan }
	open := map[string]pair{}
	for name, opts := range watches {
		open[name] = pair{direct.Watch(ctx, "/a/1", opts...), remote.Watch(ctx, "/a/1", opts...)}
	}
	both := []clientv3.Op{clientv3.OpPut("/a/1", "new"), clientv3.OpPut("/a/2", "new")}
	_, err = direct.Txn(ctx).Then(both...).Commit()
	must(t, err)
	_, err = direct.Delete(ctx, "/a/1")
	must(t, err)
	_, err = direct.Put(ctx, "/a/1/below", "x")
	must(t, err)
	end, err := direct.Put(ctx, "/a/1", "again")
	must(t, err)
	last, err := direct.Delete(ctx, "/a/1")
	must(t, err)
	for name, p := range open {
		until := last.Header.Revision
		if name == "without deletes" {
			until = end.Header.Revision
		}
		got, want := follow(p.direct, until), follow(p.remote, until)
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: got %s\nwant %s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestWatchFromCompactedRevision(t *testing.T) {
	t.Parallel()
	direct, remote := clients(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 3 {
		_, err := direct.Put(ctx, "/a", "x")
		must(t, err)
	}
	_, err := direct.Compact(ctx, 4, clientv3.WithCompactPhysical())
	must(t, err)
	for _, c := range []*clientv3.Client{direct, remote} {
		changes := c.Watch(ctx, "/a", clientv3.WithRev(2))
		r := <-changes
		if !errors.Is(r.Err(), rpctypes.ErrCompacted) || r.CompactRevision != 4 || !r.Canceled {
			t.Errorf("got %s", describe(r))
		}
		if r, ok := <-changes; ok {
			t.Errorf("after the end: %s", describe(r))
		}
	}
}

// Watches with the same metadata learn how far the member is, the others do not.
func TestRequestProgress(t *testing.T) {
	t.Parallel()
	direct, _ := clients(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	asking := metadata.NewOutgoingContext(ctx, metadata.Pairs("of", "one"))
	asked, other := direct.Watch(asking, "/a"), direct.Watch(ctx, "/a")
	put, err := direct.Put(ctx, "/b", "x")
	must(t, err)
	must(t, direct.RequestProgress(asking))
	if r := <-asked; !r.IsProgressNotify() || r.Header.Revision != put.Header.Revision {
		t.Errorf("got %s, want progress at %d", describe(r), put.Header.Revision)
	}
	_, err = direct.Put(ctx, "/a", "x")
	must(t, err)
	if r := <-other; len(r.Events) != 1 {
		t.Errorf("got %s, want the event", describe(r))
	}
}

// A watch ends with its context and with the watcher, and takes no other watch with it.
func TestWatchesEnd(t *testing.T) {
	t.Parallel()
	direct, _ := clients(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended, kept := direct.Watch(ctx, "/a"), direct.Watch(t.Context(), "/a")
	cancel()
	if r, ok := <-ended; ok {
		t.Errorf("after its context: %s", describe(r))
	}
	_, err := direct.Put(t.Context(), "/a", "x")
	must(t, err)
	if r := <-kept; len(r.Events) != 1 {
		t.Errorf("got %s, want the event", describe(r))
	}
	// Progress is asked for while watches end.
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		changes := direct.Watch(ctx, "/a")
		go cancel()
		must(t, direct.RequestProgress(context.Background()))
		for range changes {
		}
	}
	must(t, direct.Watcher.Close())
	for range kept {
	}
	if _, ok := <-direct.Watch(t.Context(), "/a"); ok {
		t.Error("a watch began after Close")
	}
}
