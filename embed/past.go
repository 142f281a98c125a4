package embed

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Past returns the changes from one revision to another, in their order and without previous
// values. A watch from an old revision reads everything up to now once more for each thousand
// changes, and nobody can write meanwhile; Past reads only these revisions and locks nobody out. If
// the first one has been compacted, Past returns the revision of the compaction, like a watch.
func (w *watcher) Past(
	ctx context.Context, first, last int64, key string, opts ...clientv3.OpOption,
) (events []*clientv3.Event, compacted int64, err error) {
	from, end := keyRange(clientv3.OpGet(key, opts...))
	type past struct {
		events    []*clientv3.Event
		compacted int64
	}
	found, err := untilFault(ctx, w.faults, func() (past, error) {
		events, err := w.past(first, last, from, end)
		// A compaction may have begun meanwhile, so ask for it afterwards.
		return past{events, w.server.KV().FirstRev()}, err
	})
	switch {
	case err != nil:
		return nil, 0, err
	case found.compacted >= first:
		return nil, found.compacted, nil
	}
	return found.events, 0, nil
}

func (w *watcher) past(first, last int64, from, end []byte) (events []*clientv3.Event, err error) {
	// As for watches: a concurrent read transaction may hold changes twice, in the database and in
	// the buffer of a commit before.
	tx := w.server.Backend().ReadTx()
	tx.RLock()
	defer tx.RUnlock()
	at := func(revision int64) []byte {
		return mvcc.RevToBytes(mvcc.Revision{Main: revision}, mvcc.NewRevBytes())
	}
	revisions, values := tx.UnsafeRange(schema.Key, at(first), at(last+1), 0)
	for i, value := range values {
		if key, ok := keyOf(value); ok && !within(key, from, end) {
			continue
		}
		kv := &mvccpb.KeyValue{}
		if err := proto.Unmarshal(value, kv); err != nil {
			return nil, fmt.Errorf("revision %x: %w", revisions[i], err)
		}
		e := &clientv3.Event{Type: clientv3.EventTypePut, Kv: kv}
		if mvcc.IsTombstone(revisions[i]) {
			e.Type = clientv3.EventTypeDelete
			kv.ModRevision = mvcc.BytesToRev(revisions[i]).Main
		}
		if within(kv.Key, from, end) {
			events = append(events, e)
		}
	}
	return events, nil
}

// keyOf returns the key of an encoded mvccpb.KeyValue, if it comes first.
func keyOf(value []byte) ([]byte, bool) {
	number, kind, n := protowire.ConsumeTag(value)
	if n < 0 || number != 1 || kind != protowire.BytesType {
		return nil, false
	}
	key, n := protowire.ConsumeBytes(value[n:])
	return key, n >= 0
}

// within reports whether a key is in a range of [keyRange].
func within(key, from, end []byte) bool {
	switch {
	case end == nil:
		return bytes.Equal(key, from)
	case len(end) == 0:
		return bytes.Compare(key, from) >= 0
	}
	return bytes.Compare(key, from) >= 0 && bytes.Compare(key, end) < 0
}
