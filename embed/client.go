package embed

import (
	"bytes"
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
	c.KV = clientv3.NewKVFromKVClient(&kvClient{
		KVClient: adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(server)), faults: f,
	}, c)
	c.Lease = clientv3.NewLeaseFromLeaseClient(leaseClient{
		adapter.LeaseServerToLeaseClient(v3rpc.NewQuotaLeaseServer(server)), f,
	}, c, time.Second)
	return c
}

type kvClient struct {
	pb.KVClient
	faults *faults
	// caughtUp is set once the member has applied everything that it acknowledged before it was
	// started.
	caughtUp atomic.Bool
}

// Range reads. The first read waits until the member has applied its log. From then on a read needs
// no agreement with the raft log: this is the only member, and it acknowledges a write after it has
// applied it, so whoever reads afterwards sees the write. Only a read that checks the member's
// health still passes through raft.
//
// On a busy machine, a read may coincide with the member's election as its own leader. Like the
// client for remote members, Range then reads again.
func (c *kvClient) Range(
	ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption,
) (*pb.RangeResponse, error) {
	if c.caughtUp.Load() && !bytes.HasSuffix(r.Key, []byte(healthKey)) {
		r.Serializable = true
	}
	for {
		answer, err := untilFault(c.faults, func() (*pb.RangeResponse, error) {
			return c.KVClient.Range(ctx, r, opts...)
		})
		if err == nil && !r.Serializable {
			c.caughtUp.Store(true)
		}
		if !errors.Is(err, rpctypes.ErrGRPCLeaderChanged) || ctx.Err() != nil {
			return answer, err
		}
	}
}

// healthKey is the end of the key that kube-apiserver reads to check etcd's health.
const healthKey = "/health"

func (c *kvClient) Put(
	ctx context.Context, r *pb.PutRequest, opts ...grpc.CallOption,
) (*pb.PutResponse, error) {
	if proto.Size(r) > maxRequestBytes {
		return nil, rpctypes.ErrGRPCRequestTooLarge
	}
	return untilFault(c.faults, func() (*pb.PutResponse, error) {
		return c.KVClient.Put(ctx, r, opts...)
	})
}

func (c *kvClient) DeleteRange(
	ctx context.Context, r *pb.DeleteRangeRequest, opts ...grpc.CallOption,
) (*pb.DeleteRangeResponse, error) {
	return untilFault(c.faults, func() (*pb.DeleteRangeResponse, error) {
		return c.KVClient.DeleteRange(ctx, r, opts...)
	})
}

func (c *kvClient) Txn(
	ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption,
) (*pb.TxnResponse, error) {
	if proto.Size(r) > maxRequestBytes {
		return nil, rpctypes.ErrGRPCRequestTooLarge
	}
	return untilFault(c.faults, func() (*pb.TxnResponse, error) {
		return c.KVClient.Txn(ctx, r, opts...)
	})
}

func (c *kvClient) Compact(
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
