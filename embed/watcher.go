package embed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/grpc/metadata"
)

// watcher is a clientv3.Watcher that reads from the member's store. Each watch has one goroutine.
// The library's client, which is made for a network, has two for each watch and four for each
// stream, and an event passes through five of them.
type watcher struct {
	server *etcdserver.EtcdServer
	writer *storeWriter // nil if all changes go through the log
	faults *faults
	// watched is the latest revision that a watch has received.
	watched *atomic.Int64

	mu      sync.Mutex
	open    map[*watch]struct{}
	closed  bool
	ended   chan struct{} // closed by Close
	running sync.WaitGroup
}

func newWatcher(
	server *etcdserver.EtcdServer, writer *storeWriter, f *faults, watched *atomic.Int64,
) *watcher {
	return &watcher{
		server: server, writer: writer, faults: f, watched: watched, open: map[*watch]struct{}{},
		ended: make(chan struct{}),
	}
}

// watch is a watch of one key or range.
type watch struct {
	watcher *watcher
	op      clientv3.Op
	group   string
	out     chan clientv3.WatchResponse

	began chan struct{} // closed when the watch has begun

	mu     sync.Mutex
	stream mvcc.WatchStream // nil when the watch has ended
}

// groupOf returns what watches that are asked for their progress together have in common: the
// metadata of their contexts. In the library's client, they share a stream.
func groupOf(ctx context.Context) string {
	md, _ := metadata.FromOutgoingContext(ctx)
	return fmt.Sprint(md)
}

// Watch implements clientv3.Watcher. The channel is closed when ctx ends, when the history from
// the given revision was compacted, and when the member stops or fails.
func (w *watcher) Watch(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) clientv3.WatchChan {
	s := &watch{
		watcher: w, op: clientv3.OpGet(key, opts...), group: groupOf(ctx),
		out: make(chan clientv3.WatchResponse, 1), began: make(chan struct{}),
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		close(s.out)
		return s.out
	}
	w.open[s] = struct{}{}
	w.running.Go(func() { s.run(ctx) })
	w.mu.Unlock()
	select {
	case <-s.began:
	case <-ctx.Done():
	case <-w.ended:
	}
	return s.out
}

// keyRange returns the range of a watch as the store expects it.
func keyRange(op clientv3.Op) (from, end []byte) {
	from, end = op.KeyBytes(), op.RangeBytes()
	if len(from) == 0 {
		from = []byte{0}
	}
	switch {
	case len(end) == 0:
		return from, nil // one key
	case len(end) == 1 && end[0] == 0:
		return from, []byte{} // all keys from this one on
	}
	return from, end
}

func filters(op clientv3.Op) (all []mvcc.FilterFunc) {
	if op.IsFilterPut() {
		all = append(all, func(e *mvccpb.Event) bool { return e.Type == clientv3.EventTypePut })
	}
	if op.IsFilterDelete() {
		all = append(all, func(e *mvccpb.Event) bool { return e.Type == clientv3.EventTypeDelete })
	}
	return all
}

// run passes on what the store reports until the watch ends.
func (s *watch) run(ctx context.Context) {
	defer close(s.out)
	defer s.forget()
	stream := s.watcher.server.Watchable().NewWatchStream()
	s.stream = stream
	defer s.end()
	from, end := keyRange(s.op)
	_, err := stream.Watch(ctx, clientv3.AutoWatchID, from, end, s.op.Rev(), filters(s.op)...)
	close(s.began)
	if err != nil { // the range is empty
		s.send(ctx, clientv3.WatchResponse{Canceled: true})
		return
	}
	if s.op.IsCreatedNotify() &&
		!s.send(ctx, clientv3.WatchResponse{Header: s.header(stream.Rev()), Created: true}) {
		return
	}
	var progress <-chan time.Time
	if s.op.IsProgressNotify() {
		ticker := time.NewTicker(v3rpc.GetProgressReportInterval())
		defer ticker.Stop()
		progress = ticker.C
	}
	for {
		select {
		case r, ok := <-stream.Chan():
			if !ok || !s.send(ctx, s.response(r)) || r.CompactRevision != 0 {
				return
			}
		case <-progress:
			s.requestProgress()
		case <-ctx.Done():
			return
		case <-s.watcher.ended:
			return
		}
	}
}

// end closes the stream, which must not be asked for its progress afterwards. The store counts the
// events that nobody has received yet, so it receives the rest.
func (s *watch) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.Close()
	for r := range s.stream.Chan() {
		mvcc.ReportEventReceived(len(r.Events))
	}
	s.stream = nil
}

// report makes the store report how far the watch is, unless the watch still has to catch up.
func (s *watch) report() {
	<-s.began
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		s.requestProgress()
	}
}

// requestProgress meets no transaction in the store. The request locks the watches and then the
// store, for reading, and a transaction the other way round. One of them would wait for ever if the
// log, for a snapshot or a compaction, waited at the same time to lock the store for writing.
func (s *watch) requestProgress() {
	if w := s.watcher.writer; w != nil {
		w.order.Lock()
		defer w.order.Unlock()
	}
	s.stream.RequestProgressAll()
}

func (s *watch) forget() {
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	delete(s.watcher.open, s)
}

func (s *watch) send(ctx context.Context, r clientv3.WatchResponse) bool {
	select {
	case s.out <- r:
		return true
	case <-ctx.Done():
	case <-s.watcher.ended:
	}
	return false
}

func (s *watch) header(revision int64) *pb.ResponseHeader {
	server := s.watcher.server
	return &pb.ResponseHeader{
		ClusterId: uint64(server.Cluster().ID()), MemberId: uint64(server.MemberID()),
		Revision: revision, RaftTerm: server.Term(),
	}
}

// response returns what the store reports as clients expect it.
func (s *watch) response(r mvcc.WatchResponse) clientv3.WatchResponse {
	mvcc.ReportEventReceived(len(r.Events))
	s.watcher.note(r.Revision)
	events := make([]*clientv3.Event, len(r.Events))
	for i, e := range r.Events {
		// A copy, because other watches have the same event.
		event := &mvccpb.Event{Type: e.Type, Kv: e.Kv}
		if s.op.IsPrevKV() && !v3rpc.IsCreateEvent(e) {
			event.PrevKv = s.before(e.Kv)
		}
		events[i] = (*clientv3.Event)(event)
	}
	return clientv3.WatchResponse{
		Header: s.header(r.Revision), Events: events, CompactRevision: r.CompactRevision,
		Canceled: r.CompactRevision != 0,
	}
}

// before returns a key and its value as they were before a change, or nil if that was compacted.
func (s *watch) before(kv *mvccpb.KeyValue) *mvccpb.KeyValue {
	old, err := s.watcher.server.KV().Range(context.Background(), kv.Key, nil,
		mvcc.RangeOptions{Rev: kv.ModRevision - 1})
	if err != nil || len(old.KVs) == 0 {
		return nil
	}
	return old.KVs[0]
}

// note notes that a watch has received a revision.
func (w *watcher) note(revision int64) {
	for {
		watched := w.watched.Load()
		if revision <= watched || w.watched.CompareAndSwap(watched, revision) {
			return
		}
	}
}

// RequestProgress implements clientv3.Watcher. Watches whose contexts have the same metadata as ctx
// are told the current revision, unless they still have to catch up.
func (w *watcher) RequestProgress(ctx context.Context) error {
	group := groupOf(ctx)
	w.mu.Lock()
	var asked []*watch
	for s := range w.open {
		if s.group == group {
			asked = append(asked, s)
		}
	}
	w.mu.Unlock()
	_, err := untilFault(ctx, w.faults, func() (struct{}, error) {
		for _, s := range asked {
			s.report()
		}
		return struct{}{}, nil
	})
	return err
}

// Close implements clientv3.Watcher. It ends all watches and, unless the member has failed, waits
// for them.
func (w *watcher) Close() error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.ended)
	}
	w.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.running.Wait()
	}()
	select {
	case <-done:
	case <-w.faults.any:
	}
	return nil
}
