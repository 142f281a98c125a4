package embed

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/grpc"
)

// storeWriter makes an ephemeral member's transactions without the raft log. The log is for other
// members and for a restart, and an ephemeral member has neither. Through the log, a transaction
// passes four goroutines, which takes longer than the transaction itself.
//
// The log also puts changes in order. Two of them depend on that: a transaction in the log compares
// before it locks the store, and the grant of a lease takes its locks in another order than a put.
// So transactions and grants wait for their turn, whether they go through the log or not. All other
// changes lock the store first, and need no turn.
type storeWriter struct {
	storeReader
	quota storage.Quota
	turn  chan struct{} // holds an element while it is somebody's turn
}

func newStoreWriter(reader storeReader) *storeWriter {
	m := reader.member
	return &storeWriter{
		storeReader: reader,
		quota: storage.NewBackendQuota(m.Logger(), m.Cfg.QuotaBackendBytes, m.Backend(),
			"kinproc"),
		turn: make(chan struct{}, 1),
	}
}

// inTurn returns the result of call, which it calls when it is its turn.
func inTurn[A any](
	ctx context.Context, w *storeWriter, call func() (A, error),
) (answer A, err error) {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
		return call()
	case <-ctx.Done():
		return answer, ctx.Err()
	case <-w.member.StoppingNotify():
		return answer, rpctypes.ErrGRPCStopped
	}
}

// end waits for the transaction that is under way, unless a fault occurs, and lets none follow. The
// member must not close its store before that.
func (w *storeWriter) end(f *faults) {
	select {
	case w.turn <- struct{}{}:
	case <-f.any:
	}
}

// Range waits for its turn if it must include all that watches have received: a transaction notifies
// them shortly before reads include what it has changed.
func (w *storeWriter) Range(
	ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption,
) (*pb.RangeResponse, error) {
	if r.Serializable {
		return w.storeReader.Range(ctx, r, opts...)
	}
	return inTurn(ctx, w, func() (*pb.RangeResponse, error) {
		return w.storeReader.Range(ctx, r, opts...)
	})
}

// Txn leaves to the member what [storeWriter.takes] does not take, and errors, for their codes. A
// transaction that fails has changed nothing.
func (w *storeWriter) Txn(
	ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption,
) (*pb.TxnResponse, error) {
	return inTurn(ctx, w, func() (*pb.TxnResponse, error) {
		if w.takes(r) && ctx.Err() == nil {
			kv := w.member.KV()
			write := kv.Write(traceutil.TODO())
			// The context must not end a transaction after its first change.
			answer, _, err := txn.Txn(context.WithoutCancel(ctx), w.member.Logger(), r, true,
				lockedKV{kv, write}, nil, false)
			write.End()
			if err == nil {
				w.complete(answer.Header)
				return answer, nil
			}
		}
		return w.KVClient.Txn(ctx, r, opts...)
	})
}

// takes reports whether r is one conditional put or delete, as those of an API server are. Only the
// member knows leases, and what to do when the store is full.
func (w *storeWriter) takes(r *pb.TxnRequest) bool {
	if len(r.Compare) != 1 || len(r.Compare[0].Key) == 0 ||
		len(r.Success) != 1 || len(r.Failure) > 1 {
		return false
	}
	if len(r.Failure) == 1 && !isPlain(r.Failure[0].GetRequestRange()) {
		return false
	}
	if put := r.Success[0].GetRequestPut(); put != nil {
		if len(put.Key) == 0 || put.Lease != 0 || put.IgnoreLease || put.IgnoreValue {
			return false
		}
	} else if len(r.Success[0].GetRequestDeleteRange().GetKey()) == 0 {
		return false
	}
	return w.quota.Available(r) && len(w.member.Alarms()) == 0
}

// lockedKV is a store in which all happens in one write transaction. The library reads in one
// transaction and writes in another, because the member applies one entry of its log at a time.
type lockedKV struct {
	mvcc.KV
	write mvcc.TxnWrite
}

func (kv lockedKV) Read(mvcc.ReadTxMode, *traceutil.Trace) mvcc.TxnRead { return unended{kv.write} }

func (kv lockedKV) Write(*traceutil.Trace) mvcc.TxnWrite { return unended{kv.write} }

// unended is a transaction that somebody else ends.
type unended struct{ mvcc.TxnWrite }

func (unended) End() {}

// leasesInTurn grants leases when it is their turn.
type leasesInTurn struct {
	pb.LeaseClient
	writer *storeWriter
}

func (c leasesInTurn) LeaseGrant(
	ctx context.Context, r *pb.LeaseGrantRequest, opts ...grpc.CallOption,
) (*pb.LeaseGrantResponse, error) {
	return inTurn(ctx, c.writer, func() (*pb.LeaseGrantResponse, error) {
		return c.LeaseClient.LeaseGrant(ctx, r, opts...)
	})
}
