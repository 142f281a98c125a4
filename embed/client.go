package embed

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// newClient returns a client that calls the member directly. An etcd goroutine that ends because of
// a fault keeps its locks, and a call that needs one of them blocks forever, regardless of its
// context. Every call therefore runs on a separate goroutine, unless its caller has one to spare
// (see [Abandonable]): after a fault, the call returns the fault, and the goroutine is abandoned.
//
// The client changes the store by the writer, unless that is nil.
func newClient(server *etcdserver.EtcdServer, writer *storeWriter, f *faults) *clientv3.Client {
	c := v3client.New(server)
	watched := &atomic.Int64{}
	leases := adapter.LeaseServerToLeaseClient(v3rpc.NewQuotaLeaseServer(server))
	var kv pb.KVClient
	if writer != nil {
		kv, leases = writer, leaseGranter{leases, writer}
	} else {
		kv = newStoreReader(server)
	}
	c.KV = clientv3.NewKVFromKVClient(kvClient{kv, f, watched}, c)
	c.Watcher = newWatcher(server, writer, f, watched)
	c.Lease = clientv3.NewLeaseFromLeaseClient(leaseClient{leases, f}, c, time.Second)
	return c
}

type kvClient struct {
	pb.KVClient
	faults *faults
	// watched is the latest revision that a watch has received.
	watched *atomic.Int64
}

// Range reads. A linearizable read waits for the raft log, which takes longer than the read itself.
// The only member of a cluster need not wait, with one exception. It has applied its log before it
// is ready, and applies a write before it acknowledges the write. But a watch receives the event of
// a write shortly before reads include the write, so Range waits if a watch has received a later
// revision than that of the read.
//
// On a busy machine, a read that waits may coincide with the member's election as its own leader.
// Like the client for remote members, Range then reads again.
func (c kvClient) Range(
	ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption,
) (*pb.RangeResponse, error) {
	if !r.Serializable {
		watched := c.watched.Load()
		r.Serializable = true
		answer, err := c.read(ctx, r, opts)
		if err == nil && answer.Header.Revision >= watched {
			return answer, nil
		}
		// After a fault, the abandoned call still has the request.
		r = proto.CloneOf(r)
		r.Serializable = false
	}
	for {
		answer, err := c.read(ctx, r, opts)
		if !errors.Is(err, rpctypes.ErrGRPCLeaderChanged) || ctx.Err() != nil {
			return answer, err
		}
	}
}

func (c kvClient) read(
	ctx context.Context, r *pb.RangeRequest, opts []grpc.CallOption,
) (*pb.RangeResponse, error) {
	return untilFault(ctx, c.faults, func() (*pb.RangeResponse, error) {
		return c.KVClient.Range(ctx, r, opts...)
	})
}

func (c kvClient) Put(
	ctx context.Context, r *pb.PutRequest, opts ...grpc.CallOption,
) (*pb.PutResponse, error) {
	if proto.Size(r) > maxRequestBytes {
		return nil, rpctypes.ErrGRPCRequestTooLarge
	}
	return untilFault(ctx, c.faults, func() (*pb.PutResponse, error) {
		return c.KVClient.Put(ctx, r, opts...)
	})
}

func (c kvClient) DeleteRange(
	ctx context.Context, r *pb.DeleteRangeRequest, opts ...grpc.CallOption,
) (*pb.DeleteRangeResponse, error) {
	return untilFault(ctx, c.faults, func() (*pb.DeleteRangeResponse, error) {
		return c.KVClient.DeleteRange(ctx, r, opts...)
	})
}

func (c kvClient) Txn(
	ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption,
) (*pb.TxnResponse, error) {
	if proto.Size(r) > maxRequestBytes {
		return nil, rpctypes.ErrGRPCRequestTooLarge
	}
	return untilFault(ctx, c.faults, func() (*pb.TxnResponse, error) {
		return c.KVClient.Txn(ctx, r, opts...)
	})
}

func (c kvClient) Compact(
	ctx context.Context, r *pb.CompactionRequest, opts ...grpc.CallOption,
) (*pb.CompactionResponse, error) {
	return untilFault(ctx, c.faults, func() (*pb.CompactionResponse, error) {
		return c.KVClient.Compact(ctx, r, opts...)
	})
}

// storeReader reads from the member's store. Around a read, the member checks the permissions of
// etcd's users, of which there are none, and makes spans and metrics. For a single key, that takes
// about as long as the read.
type storeReader struct {
	pb.KVClient
	member *etcdserver.EtcdServer
}

func newStoreReader(member *etcdserver.EtcdServer) storeReader {
	return storeReader{adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(member)), member}
}

// Range leaves to the member what waits for the log, what sorts, and errors, for their codes.
func (c storeReader) Range(
	ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption,
) (*pb.RangeResponse, error) {
	if r.Serializable && isPlain(r) {
		answer, _, err := txn.Range(ctx, c.member.Logger(), c.member.KV(), r, true)
		if err == nil {
			c.complete(answer.Header)
			return answer, nil
		}
	}
	return c.KVClient.Range(ctx, r, opts...)
}

// isPlain reports whether r is a valid request for keys in their order.
func isPlain(r *pb.RangeRequest) bool {
	return len(r.GetKey()) > 0 && r.GetSortOrder() == pb.RangeRequest_NONE &&
		r.GetSortTarget() == pb.RangeRequest_KEY
}

// complete sets what the store does not know of the header of an answer.
func (c storeReader) complete(header *pb.ResponseHeader) {
	header.ClusterId = uint64(c.member.Cluster().ID())
	header.MemberId = uint64(c.member.MemberID())
	header.RaftTerm = c.member.Term()
}

type leaseClient struct {
	pb.LeaseClient
	faults *faults
}

func (c leaseClient) LeaseGrant(
	ctx context.Context, r *pb.LeaseGrantRequest, opts ...grpc.CallOption,
) (*pb.LeaseGrantResponse, error) {
	return untilFault(ctx, c.faults, func() (*pb.LeaseGrantResponse, error) {
		return c.LeaseClient.LeaseGrant(ctx, r, opts...)
	})
}

type abandonableKey struct{}

// Abandonable returns a context for calls of the client by a goroutine that nobody waits for once
// the member has failed ([Etcd.Failed]). After a failure, a call may never return. Other calls do,
// but each takes a goroutine, which a request does not need if somebody answers it in any case.
func Abandonable(ctx context.Context) context.Context {
	return context.WithValue(ctx, abandonableKey{}, true)
}

// untilFault returns the result of call, or the fault if one occurs first. If ctx is [Abandonable],
// it may never return after a fault. A panic in call is a fault too, because it may have left locks
// held.
func untilFault[A any](
	ctx context.Context, f *faults, call func() (A, error),
) (answer A, err error) {
	select {
	case <-f.any:
		return answer, f.err
	default:
	}
	if ctx.Value(abandonableKey{}) != nil {
		return untilPanic(f, call)
	}
	type result struct {
		answer A
		err    error
	}
	done := make(chan result, 1)
	go func() {
		answer, err := untilPanic(f, call)
		done <- result{answer, err}
	}()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-f.any:
		return answer, f.err
	}
}

// untilPanic returns the result of call, or the fault if call panics. [faults.OnWrite] looks for
// its name on the stack.
func untilPanic[A any](f *faults, call func() (A, error)) (answer A, err error) {
	defer func() {
		if p := recover(); p != nil {
			f.report(fmt.Errorf("etcd: %s", firstLine(fmt.Sprint(p))))
			err = f.err
		}
	}()
	return call()
}
