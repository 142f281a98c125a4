package embed

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// newClient returns a client that calls the member directly. An etcd goroutine that ends because of
// a fault keeps its locks, and a call that needs one of them blocks forever, regardless of its
// context. Every call therefore runs on a separate goroutine: after a fault, the call returns the
// fault, and the goroutine is abandoned.
func newClient(server *etcdserver.EtcdServer, f *faults) *clientv3.Client {
	c := v3client.New(server)
	c.KV = clientv3.NewKVFromKVClient(kvClient{
		adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(server)), f,
	}, c)
	c.Lease = clientv3.NewLeaseFromLeaseClient(leaseClient{
		adapter.LeaseServerToLeaseClient(v3rpc.NewQuotaLeaseServer(server)), f,
	}, c, time.Second)
	return c
}

type kvClient struct {
	pb.KVClient
	faults *faults
}

// Range reads. On a busy machine, a read may coincide with the member's election as its own leader.
// Like the client for remote members, Range then reads again.
func (c kvClient) Range(
	ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption,
) (*pb.RangeResponse, error) {
	for {
		answer, err := untilFault(c.faults, func() (*pb.RangeResponse, error) {
			return c.KVClient.Range(ctx, r, opts...)
		})
		if !errors.Is(err, rpctypes.ErrGRPCLeaderChanged) || ctx.Err() != nil {
			return answer, err
		}
	}
}

func (c kvClient) Put(
	ctx context.Context, r *pb.PutRequest, opts ...grpc.CallOption,
) (*pb.PutResponse, error) {
	if proto.Size(r) > maxRequestBytes {
		return nil, rpctypes.ErrGRPCRequestTooLarge
	}
	return untilFault(c.faults, func() (*pb.PutResponse, error) {
		return c.KVClient.Put(ctx, r, opts...)
	})
}

func (c kvClient) DeleteRange(
	ctx context.Context, r *pb.DeleteRangeRequest, opts ...grpc.CallOption,
) (*pb.DeleteRangeResponse, error) {
	return untilFault(c.faults, func() (*pb.DeleteRangeResponse, error) {
		return c.KVClient.DeleteRange(ctx, r, opts...)
	})
}

func (c kvClient) Txn(
	ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption,
) (*pb.TxnResponse, error) {
	if proto.Size(r) > maxRequestBytes {
		return nil, rpctypes.ErrGRPCRequestTooLarge
	}
	return untilFault(c.faults, func() (*pb.TxnResponse, error) {
		return c.KVClient.Txn(ctx, r, opts...)
	})
}

func (c kvClient) Compact(
	ctx context.Context, r *pb.CompactionRequest, opts ...grpc.CallOption,
) (*pb.CompactionResponse, error) {
	return untilFault(c.faults, func() (*pb.CompactionResponse, error) {
		return c.KVClient.Compact(ctx, r, opts...)
	})
}

type leaseClient struct {
	pb.LeaseClient
	faults *faults
}

func (c leaseClient) LeaseGrant(
	ctx context.Context, r *pb.LeaseGrantRequest, opts ...grpc.CallOption,
) (*pb.LeaseGrantResponse, error) {
	return untilFault(c.faults, func() (*pb.LeaseGrantResponse, error) {
		return c.LeaseClient.LeaseGrant(ctx, r, opts...)
	})
}

// untilFault returns the result of call, or the fault if one occurs first. A panic in call is a
// fault too, because it may have left locks held.
func untilFault[A any](f *faults, call func() (A, error)) (A, error) {
	type result struct {
		answer A
		err    error
	}
	var none A
	select {
	case <-f.any:
		return none, f.err
	default:
	}
	done := make(chan result, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				f.report(fmt.Errorf("etcd: %s", firstLine(fmt.Sprint(p))))
			}
		}()
		answer, err := call()
		done <- result{answer, err}
	}()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-f.any:
		return none, f.err
	}
}
