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
		Past(ctx context.Context, first, last int64, key string, opts ...clientv3.OpOption) (
			[]*clientv3.Event, int64, error)
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
			got, compacted, err := reader.Past(ctx, first, last, "/a/1", opts...)
			if err != nil || compacted != 0 {
				t.Fatalf("%s from %d: compacted at %d, %v", name, first, compacted, err)
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
	if got, _, err := reader.Past(ctx, 2, last-2, "/a/1"); err != nil || len(got) != 1 {
		t.Errorf("up to a revision: %v, %v", got, err)
	}
	_, err = direct.Compact(ctx, last-1)
	must(t, err)
	if got, compacted, err := reader.Past(ctx, last-1, last, "/a/1"); err != nil || compacted != last-1 {
		t.Errorf("after a compaction: %v, %d, %v", got, compacted, err)
	}
	if got, compacted, err := reader.Past(ctx, last, last, "/a/1"); err != nil || compacted != 0 ||
		len(got) != 1 {
		t.Errorf("behind a compaction: %v, %d, %v", got, compacted, err)
	}
}
