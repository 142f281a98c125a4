package embed_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestPastIsWhatWatchesSee compares the changes between two revisions with those that a watch gets.
func TestPastIsWhatWatchesSee(t *testing.T) {
	t.Parallel()
	direct, _ := clients(t)
	reader := direct.Watcher.(interface {
		Past(ctx context.Context, first, last, most int64, key string, opts ...clientv3.OpOption) (
			[]*clientv3.Event, int64, int64, error)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, key := range []string{"/a", "/a/1", "/a/2", "/b"} {
		_, err := direct.Put(ctx, key, "old "+key)
		must(t, err)
	}
	_, err := direct.Txn(ctx).Then(clientv3.OpDelete("/a/1"), clientv3.OpPut("/a/2", "new"),
		clientv3.OpDelete("/b")).Commit()
	must(t, err)
	end, err := direct.Put(ctx, "/a/1", "again")
	must(t, err)
	last := end.Header.Revision
	for name, opts := range map[string][]clientv3.OpOption{
		"one key":       nil,
		"prefix":        {clientv3.WithPrefix()},
		"a range":       {clientv3.WithRange("/a/2")},
		"from a key on": {clientv3.WithFromKey()},
	} {
		for first := int64(2); first <= last; first++ {
			got, from, compacted, err := reader.Past(ctx, first, last, 1<<20, "/a/1", opts...)
			if err != nil || compacted != 0 || from != first {
				t.Fatalf("%s from %d: %d, compacted at %d, %v", name, first, from, compacted, err)
			}
			var want []*clientv3.Event
			watch := direct.Watch(ctx, "/a/1", append(opts, clientv3.WithRev(first))...)
			for len(want) == 0 || want[len(want)-1].Kv.ModRevision < last {
				want = append(want, (<-watch).Events...)
			}
			is := describe(clientv3.WatchResponse{Events: got})
			if must := describe(clientv3.WatchResponse{Events: want}); is != must {
				t.Errorf("%s from %d: got %s\nwant %s", name, first, is, must)
			}
		}
	}
	// Whatever the limit, nothing is lost between two calls, and no revision is torn.
	for _, most := range []int64{0, 30, 100} {
		var got []*clientv3.Event
		calls := 0
		for to := last; to >= 2; calls++ {
			part, from, _, err := reader.Past(ctx, 2, to, most, "/", clientv3.WithPrefix())
			if err != nil || from > to || len(part) == 0 || part[0].Kv.ModRevision < from {
				t.Fatalf("%d bytes up to %d: from %d, %v, %v", most, to, from, part, err)
			}
			got, to = append(part, got...), from-1
		}
		want, _, _, err := reader.Past(ctx, 2, last, 1<<20, "/", clientv3.WithPrefix())
		must(t, err)
		if is, must := describe(clientv3.WatchResponse{Events: got}),
			describe(clientv3.WatchResponse{Events: want}); is != must || calls < 2 {
			t.Errorf("%d bytes, %d calls: got %s\nwant %s", most, calls, is, must)
		}
	}
	if got, _, _, err := reader.Past(ctx, 2, last-2, 1<<20, "/a/1"); err != nil || len(got) != 1 {
		t.Errorf("up to a revision: %v, %v", got, err)
	}
	_, err = direct.Compact(ctx, last-1)
	must(t, err)
	got, _, compacted, err := reader.Past(ctx, last-1, last, 1, "/a/1")
	if err != nil || compacted != last-1 {
		t.Errorf("after a compaction: %v, %d, %v", got, compacted, err)
	}
	if got, _, compacted, err := reader.Past(ctx, last, last, 1, "/a/1"); err != nil || compacted != 0 ||
		len(got) != 1 {
		t.Errorf("behind a compaction: %v, %d, %v", got, compacted, err)
	}
}
