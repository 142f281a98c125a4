package etcdconn

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// A write that is on its way to the leader of an etcd cluster when the leader dies is lost, but its
// member waits seven seconds for it. The client gives up sooner: when a request takes longer than
// leaderPatience, it looks at the members at leaderChecks, and ends the request at the second look
// that shows a leader of a later term. By then, a write that was not lost would have been applied.
const (
	leaderPatience = time.Second
	leaderChecks   = 250 * time.Millisecond
)

// leaderWatch ends requests that were lost with the leader of an etcd cluster.
type leaderWatch struct {
	client *clientv3.Client // set before the first request
	term   atomic.Uint64    // the latest that a response has named
}

// intercept is a grpc.UnaryClientInterceptor.
func (w *leaderWatch) intercept(
	ctx context.Context, method string, request, reply any, connection *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	if !strings.HasPrefix(method, "/etcdserverpb.KV/") {
		return invoke(ctx, method, request, reply, connection, options...)
	}
	calling, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := w.term.Load()
	slow := time.AfterFunc(leaderPatience, func() {
		// Before the first response, no term is known that a leader could be later than.
		if began > 0 && w.succeeded(calling, began) {
			cancel(rpctypes.ErrGRPCTimeoutDueToLeaderFail)
		}
	})
	defer slow.Stop()
	err := invoke(calling, method, request, reply, connection, options...)
	if err != nil && context.Cause(calling) == rpctypes.ErrGRPCTimeoutDueToLeaderFail {
		return rpctypes.ErrGRPCTimeoutDueToLeaderFail
	}
	if r, ok := reply.(interface {
		GetHeader() *etcdserverpb.ResponseHeader
	}); ok && err == nil {
		w.note(r.GetHeader().GetRaftTerm())
	}
	return err
}

func (w *leaderWatch) note(term uint64) {
	for {
		known := w.term.Load()
		if term <= known || w.term.CompareAndSwap(known, term) {
			return
		}
	}
}

// succeeded waits until there has been a leader of a later term for two looks. It returns false
// when ctx ends.
func (w *leaderWatch) succeeded(ctx context.Context, term uint64) bool {
	tick := time.NewTicker(leaderChecks)
	defer tick.Stop()
	for looks := 0; ; {
		if w.led(ctx, term) {
			if looks++; looks == 2 {
				return true
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// led reports whether a member knows a leader of a later term.
func (w *leaderWatch) led(ctx context.Context, term uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, leaderChecks)
	defer cancel()
	var led atomic.Bool
	var looking sync.WaitGroup
	for _, endpoint := range w.client.Endpoints() {
		looking.Go(func() { // a dead member takes all the time there is
			status, err := w.client.Status(ctx, endpoint)
			if err == nil && status.Leader != 0 && status.RaftTerm > term {
				led.Store(true)
			}
		})
	}
	looking.Wait()
	return led.Load()
}
