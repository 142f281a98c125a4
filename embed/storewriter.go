package embed

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/grpc"
)

// storeWriter makes an ephemeral member's transactions without the raft log. The log is for other
// members and for a restart, and an ephemeral member has neither. Through the log, a transaction
// passes four goroutines, which takes longer than the transaction itself.
type storeWriter struct {
	storeReader
	quota storage.Quota

	// A transaction in the store holds order. Two kinds of change in the log hold it too, because
	// they must not meet such a transaction: a transaction in the log compares before it locks
	// the store, and the grant of a lease takes its locks in another order than a put. All other
	// changes in the log lock the store first. Watches hold it to request progress.
	//
	// The store has locks of its own. But the end of a transaction passes one on while it holds
	// another that the next transaction needs: with many at once, each would wait until the
	// scheduler comes back to the one before.
	order sync.Mutex
	ended bool // guarded by order
}

func newStoreWriter(member *etcdserver.EtcdServer) *storeWriter {
	return &storeWriter{
		storeReader: newStoreReader(member),
		quota: storage.NewBackendQuota(member.Logger(), member.Cfg.QuotaBackendBytes,
			member.Backend(), "kinproc"),
	}
}

// alone returns the result of call, during which no transaction is made in the store.
func alone[A any](w *storeWriter, call func() (A, error)) (A, error) {
	w.order.Lock()
	defer w.order.Unlock()
	return call()
}

// end leaves all further transactions to the member, and waits for those under way unless a fault
// occurs. The member must not close its store before that.
func (w *storeWriter) end(f *faults) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.order.Lock()
		defer w.order.Unlock()
		w.ended = true
	}()
	select {
	case <-done:
	case <-f.any:
	}
}

// Range waits for the transactions under way if it must include all that watches have received. A
// transaction notifies watches shortly before reads include its change.
func (w *storeWriter) Range(
	ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption,
) (*pb.RangeResponse, error) {
	if r.Serializable {
		return w.storeReader.Range(ctx, r, opts...)
	}
	return alone(w, func() (*pb.RangeResponse, error) { return w.storeReader.Range(ctx, r, opts...) })
}

// Txn makes the transactions that [storeWriter.accepts] in the store. It leaves the others to the
// member, and those that fail, for their error codes.
func (w *storeWriter) Txn(
	ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption,
) (*pb.TxnResponse, error) {
	if w.accepts(r) && ctx.Err() == nil {
		if answer, err := w.inStore(ctx, r); err == nil {
			return answer, nil
		}
	}
	return alone(w, func() (*pb.TxnResponse, error) { return w.KVClient.Txn(ctx, r, opts...) })
}

// inStore makes a transaction in the store. If it returns an error, nothing has changed.
func (w *storeWriter) inStore(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	w.order.Lock()
	defer w.order.Unlock()
	if w.ended {
		return nil, rpctypes.ErrGRPCStopped
	}
	kv := w.member.KV()
	write := kv.Write(traceutil.Get(ctx))
	// The context must not end a transaction after its first change.
	answer, _, err := txn.Txn(context.WithoutCancel(ctx), w.member.Logger(), r, true,
		lockedKV{kv, write}, leases{backend: w.member.Backend()}, false)
	write.End()
	if err != nil {
		return nil, err
	}
	w.complete(answer.Header)
	return answer, nil
}

// accepts reports whether r is one conditional put or delete, like those of an API server. When the
// store is full, the member knows what to do.
func (w *storeWriter) accepts(r *pb.TxnRequest) bool {
	if len(r.Compare) != 1 || len(r.Compare[0].Key) == 0 ||
		len(r.Success) != 1 || len(r.Failure) > 1 {
		return false
	}
	if len(r.Failure) == 1 && !isPlain(r.Failure[0].GetRequestRange()) {
		return false
	}
	if put := r.Success[0].GetRequestPut(); put != nil {
		if len(put.Key) == 0 || put.IgnoreLease || put.IgnoreValue {
			return false
		}
	} else if len(r.Success[0].GetRequestDeleteRange().GetKey()) == 0 {
		return false
	}
	return w.quota.Available(r) && len(w.member.Alarms()) == 0
}

// lockedKV is a store in which everything happens in one write transaction. The library reads in
// one transaction and writes in another, because the member applies one entry of its log at a time.
type lockedKV struct {
	mvcc.KV
	write mvcc.TxnWrite
}

func (kv lockedKV) Read(mvcc.ReadTxMode, *traceutil.Trace) mvcc.TxnRead { return unended{kv.write} }

func (kv lockedKV) Write(*traceutil.Trace) mvcc.TxnWrite { return unended{kv.write} }

// unended is a transaction that somebody else ends.
type unended struct{ mvcc.TxnWrite }

func (unended) End() {}

// leases looks up leases in the transaction that has locked the store. It must not ask the member,
// which would lock the store for reading once more: a snapshot or a compaction may be waiting to
// lock it for writing.
type leases struct {
	lease.Lessor // nil: a transaction only looks leases up
	backend      backend.Backend
}

func (l leases) Lookup(id lease.LeaseID) *lease.Lease {
	if schema.MustUnsafeGetLease(l.backend.BatchTx(), int64(id)) == nil {
		return nil
	}
	return &lease.Lease{ID: id}
}

// leaseGranter grants leases while no transaction is made in the store.
type leaseGranter struct {
	pb.LeaseClient
	writer *storeWriter
}

func (g leaseGranter) LeaseGrant(
	ctx context.Context, r *pb.LeaseGrantRequest, opts ...grpc.CallOption,
) (*pb.LeaseGrantResponse, error) {
	return alone(g.writer, func() (*pb.LeaseGrantResponse, error) {
		return g.LeaseClient.LeaseGrant(ctx, r, opts...)
	})
}
