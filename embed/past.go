package embed

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Past returns the changes from one revision to another, in their order and without previous
// values. A watch from an old revision reads everything up to now once more for each thousand
// changes, and nobody can write meanwhile; Past reads only these revisions and locks nobody out.
// If the changes have more than most bytes, Past leaves out earlier revisions; it returns the first
// revision that it has read. If the first one of all has been compacted, Past
// returns the revision of the compaction, like a watch.
func (w *watcher) Past(
	ctx context.Context, first, last, most int64, key string, opts ...clientv3.OpOption,
) (events []*clientv3.Event, from, compacted int64, err error) {
	begin, end := keyRange(clientv3.OpGet(key, opts...))
	type past struct {
		events          []*clientv3.Event
		from, compacted int64
	}
	found, err := untilFault(ctx, w.faults, func() (past, error) {
		events, from, err := w.past(first, last, most, begin, end)
		// A compaction may have begun meanwhile, so ask for it afterwards.
		return past{events, from, w.server.KV().FirstRev()}, err
	})
	switch {
	case err != nil:
		return nil, 0, 0, err
	case found.compacted >= first:
		return nil, 0, found.compacted, nil
	}
	return found.events, found.from, 0, nil
}

func (w *watcher) past(first, last, most int64, begin, end []byte) (
	events []*clientv3.Event, from int64, err error,
) {
	// As for watches: a concurrent read transaction may hold changes twice, in the database and in
	// the buffer of a commit before.
	tx := w.server.Backend().ReadTx()
	tx.RLock()
	defer tx.RUnlock()
	at := func(revision int64) []byte {
		return mvcc.RevToBytes(mvcc.Revision{Main: revision}, mvcc.NewRevBytes())
	}
	revisions, values := tx.UnsafeRange(schema.Key, at(first), at(last+1), 0)
	from = first
	lowest := last + 1
	for i, value := range slices.Backward(values) {
		main := mvcc.BytesToRev(revisions[i]).Main
		if most < 0 && main < lowest { // the changes of one revision stay together
			revisions, values, from = revisions[i+1:], values[i+1:], lowest
			break
		}
		if key, ok := keyOf(value); !ok || within(key, begin, end) {
			most, lowest = most-int64(len(value)), main
		}
	}
	for i, value := range values {
		if key, ok := keyOf(value); ok && !within(key, begin, end) {
			continue
		}
		kv := &mvccpb.KeyValue{}
		if err := proto.Unmarshal(value, kv); err != nil {
			return nil, 0, fmt.Errorf("revision %x: %w", revisions[i], err)
		}
		e := &clientv3.Event{Type: clientv3.EventTypePut, Kv: kv}
		if mvcc.IsTombstone(revisions[i]) {
			e.Type = clientv3.EventTypeDelete
			kv.ModRevision = mvcc.BytesToRev(revisions[i]).Main
		}
		if within(kv.Key, begin, end) {
			events = append(events, e)
		}
	}
	return events, from, nil
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
