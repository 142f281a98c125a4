package embed

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"google.golang.org/protobuf/proto"
)

func startEphemeral(t *testing.T) *Etcd {
	t.Helper()
	e, err := Start(t.Context(), Options{Dir: t.TempDir(), Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

func ifRevision(key string, revision int64) []*pb.Compare {
	return []*pb.Compare{{
		Key: []byte(key), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_ModRevision{ModRevision: revision},
	}}
}

func put(r *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
}

func putValue(key, value string) *pb.RequestOp {
	return put(&pb.PutRequest{Key: []byte(key), Value: []byte(value)})
}

func remove(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)},
	}}
}

func get(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

// The store does with a transaction what the log of another member does.
func TestTransactionsInTheStore(t *testing.T) {
	t.Parallel()
	e, other := startEphemeral(t), startEphemeral(t)
	log := newStoreReader(other.server)
	a := &pb.RangeRequest{Key: []byte("/a")}
	const lease = 7
	for _, server := range []*etcdserver.EtcdServer{e.server, other.server} {
		_, err := server.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: lease, TTL: 1000})
		if err != nil {
			t.Fatal(err)
		}
	}
	// Both members begin with revision 1.
	for _, test := range []struct {
		name    string
		inStore bool
		r       *pb.TxnRequest
	}{
		{"create", true, &pb.TxnRequest{
			Compare: ifRevision("/a", 0), Success: []*pb.RequestOp{putValue("/a", "1")},
		}},
		{"create what exists", true, &pb.TxnRequest{
			Compare: ifRevision("/a", 0), Success: []*pb.RequestOp{putValue("/a", "2")},
		}},
		{"update", true, &pb.TxnRequest{
			Compare: ifRevision("/a", 2), Success: []*pb.RequestOp{putValue("/a", "3")},
			Failure: []*pb.RequestOp{get(a)},
		}},
		{"update what has changed", true, &pb.TxnRequest{
			Compare: ifRevision("/a", 2), Success: []*pb.RequestOp{putValue("/a", "4")},
			Failure: []*pb.RequestOp{get(a)},
		}},
		{"delete what has changed", true, &pb.TxnRequest{
			Compare: ifRevision("/a", 2), Success: []*pb.RequestOp{remove("/a")},
			Failure: []*pb.RequestOp{get(a)},
		}},
		{"get the value that is replaced", true, &pb.TxnRequest{
			Compare: ifRevision("/a", 3),
			Success: []*pb.RequestOp{put(&pb.PutRequest{
				Key: []byte("/a"), Value: []byte("5"), PrevKv: true,
			})},
		}},
		{"delete", true, &pb.TxnRequest{
			Compare: ifRevision("/a", 4), Success: []*pb.RequestOp{remove("/a")},
		}},
		{"delete what does not exist", true, &pb.TxnRequest{
			Compare: ifRevision("/a", 0), Success: []*pb.RequestOp{remove("/a")},
		}},
		{"read a revision to come", true, &pb.TxnRequest{
			Compare: ifRevision("/a", 9), Success: []*pb.RequestOp{remove("/a")},
			Failure: []*pb.RequestOp{get(&pb.RangeRequest{Key: []byte("/a"), Revision: 1000})},
		}},
		{"two changes", false, &pb.TxnRequest{
			Compare: ifRevision("/a", 0), Success: []*pb.RequestOp{putValue("/a", "6"), putValue("/b", "7")},
		}},
		{"a change without a condition", false, &pb.TxnRequest{
			Success: []*pb.RequestOp{putValue("/c", "8")},
		}},
		{"only a read", false, &pb.TxnRequest{
			Compare: ifRevision("/a", 0), Failure: []*pb.RequestOp{get(a)},
		}},
		{"no key", false, &pb.TxnRequest{
			Compare: ifRevision("/a", 0), Success: []*pb.RequestOp{putValue("", "9")},
		}},
		{"no key to compare", false, &pb.TxnRequest{
			Compare: ifRevision("", 0), Success: []*pb.RequestOp{putValue("/a", "10")},
		}},
		{"an order that does not exist", false, &pb.TxnRequest{
			Compare: ifRevision("/a", 9), Success: []*pb.RequestOp{putValue("/a", "11")},
			Failure: []*pb.RequestOp{get(&pb.RangeRequest{Key: []byte("/a"), SortOrder: 7})},
		}},
		{"a lease", true, &pb.TxnRequest{
			Compare: ifRevision("/d", 0),
			Success: []*pb.RequestOp{put(&pb.PutRequest{Key: []byte("/d"), Lease: lease})},
		}},
		{"a lease that does not exist", true, &pb.TxnRequest{
			Compare: ifRevision("/e", 0),
			Success: []*pb.RequestOp{put(&pb.PutRequest{Key: []byte("/e"), Lease: lease + 1})},
		}},
	} {
		want, wantErr := log.Txn(t.Context(), test.r)
		got, err := e.writer.Txn(t.Context(), test.r)
		for _, answer := range []*pb.TxnResponse{got, want} {
			if answer != nil {
				if answer.Header.MemberId == 0 || answer.Header.ClusterId == 0 || answer.Header.RaftTerm == 0 {
					t.Errorf("%s: the header is not complete: %v", test.name, answer.Header)
				}
				answer.Header = &pb.ResponseHeader{Revision: answer.Header.Revision}
			}
		}
		if !proto.Equal(got, want) || !errors.Is(err, wantErr) {
			t.Errorf("%s: got %v, %v, want %v, %v", test.name, got, err, want, wantErr)
		}
		if got := e.writer.accepts(test.r); got != test.inStore {
			t.Errorf("%s: done in the store: %v", test.name, got)
		}
	}
	for _, e := range []*Etcd{e, other} {
		held, err := e.Client().TimeToLive(t.Context(), lease, clientv3.WithAttachedKeys())
		if err != nil || len(held.Keys) != 1 || string(held.Keys[0]) != "/d" {
			t.Errorf("the lease has %v, %v", held, err)
		}
		if _, err := e.Client().Revoke(t.Context(), lease); err != nil {
			t.Error(err)
		}
		if read, err := e.Client().Get(t.Context(), "/d"); err != nil || read.Count != 0 {
			t.Errorf("got %v, %v after the lease", read, err)
		}
	}
}

// A full store refuses changes as the member does.
func TestTransactionsInAFullStore(t *testing.T) {
	t.Parallel()
	e := startEphemeral(t)
	r := &pb.TxnRequest{Compare: ifRevision("/a", 0), Success: []*pb.RequestOp{putValue("/a", "1")}}
	if _, err := e.server.Alarm(t.Context(), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: uint64(e.server.MemberID()),
		Alarm: pb.AlarmType_NOSPACE,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.writer.Txn(t.Context(), r); !errors.Is(err, rpctypes.ErrGRPCNoSpace) {
		t.Errorf("got %v, want %v", err, rpctypes.ErrGRPCNoSpace)
	}
}

// Transactions in the store and in the log exclude each other, so no update is lost. Leases are
// granted and end at the same time.
func TestConcurrentTransactions(t *testing.T) {
	t.Parallel()
	const clients, updates = 9, 200
	e := startEphemeral(t)
	var running, granting sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	granting.Go(func() {
		for ctx.Err() == nil {
			lease, err := e.Client().Grant(t.Context(), 1000)
			if err != nil {
				t.Error(err)
				return
			}
			granting.Go(func() {
				_, err := e.Client().Txn(t.Context()).
					If(clientv3.Compare(clientv3.Version("/leased"), ">", -1)).
					Then(clientv3.OpPut("/leased", "", clientv3.WithLease(lease.ID))).Commit()
				if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
					t.Error(err)
				}
			})
			if _, err := e.Client().Revoke(t.Context(), lease.ID); err != nil {
				t.Error(err)
				return
			}
		}
	})
	lease, err := e.Client().Grant(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range clients {
		running.Go(func() {
			var opts []clientv3.OpOption
			var more []clientv3.Op
			switch i % 3 {
			case 0:
				opts = append(opts, clientv3.WithLease(lease.ID))
			case 1:
				more = append(more, clientv3.OpPut("/other", "")) // so that it goes through the log
			}
			for done := 0; done < updates; {
				read, err := e.Client().Get(t.Context(), "/count")
				if err != nil {
					t.Error(err)
					return
				}
				var count int
				var revision int64
				if len(read.Kvs) > 0 {
					count, _ = strconv.Atoi(string(read.Kvs[0].Value))
					revision = read.Kvs[0].ModRevision
				}
				answer, err := e.Client().Txn(t.Context()).
					If(clientv3.Compare(clientv3.ModRevision("/count"), "=", revision)).
					Then(append(more, clientv3.OpPut("/count", strconv.Itoa(count+1), opts...))...).Commit()
				if err != nil {
					t.Error(err)
					return
				}
				if answer.Succeeded {
					done++
				}
			}
		})
	}
	running.Wait()
	cancel()
	granting.Wait()
	read, err := e.Client().Get(t.Context(), "/count")
	if err != nil || string(read.Kvs[0].Value) != strconv.Itoa(clients*updates) {
		t.Errorf("got %v, %v, want %d", read, err, clients*updates)
	}
	if read, err := e.Client().Get(t.Context(), "/leased"); err != nil || read.Count != 0 {
		t.Errorf("got %v, %v, though all leases of the key have ended", read, err)
	}
}

// A read that must include what watches have received waits for the transactions under way.
func TestReadsWaitForTransactions(t *testing.T) {
	t.Parallel()
	e := startEphemeral(t)
	w := newStoreWriter(e.server)
	w.KVClient = &member{answers: []answer{{revision: 1}}}
	r, read := &pb.RangeRequest{Key: []byte("/a")}, make(chan error, 1)
	w.order.Lock()
	began := make(chan struct{})
	go func() {
		close(began)
		_, err := w.Range(t.Context(), r)
		read <- err
	}()
	<-began
	for range 1000 {
		runtime.Gosched()
		if len(read) > 0 {
			t.Fatalf("a read did not wait: %v", <-read)
		}
	}
	w.order.Unlock()
	if err := <-read; err != nil {
		t.Error(err)
	}
}

// The store is open until the transaction under way has ended.
func TestStopWaitsForTransactions(t *testing.T) {
	t.Parallel()
	e, err := Start(t.Context(), Options{Dir: t.TempDir(), Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	e.writer.order.Lock()
	stopped := make(chan error, 1)
	go func() { stopped <- e.Stop(context.Background()) }()
	<-e.Client().Ctx().Done() // the step before that of the server
	for i := range 1000 {
		e.server.KV().Put([]byte("/a"), []byte(strconv.Itoa(i)), 0)
		select {
		case <-e.server.StoppingNotify():
			t.Fatal("the member stops during a transaction")
		default:
		}
	}
	e.writer.order.Unlock()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// Transactions that meet a stop are refused, and the member does not fail.
func TestTransactionsDuringStop(t *testing.T) {
	t.Parallel()
	for range 10 {
		var failure atomic.Pointer[error]
		e, err := Start(t.Context(), Options{
			Dir: t.TempDir(), Ephemeral: true, OnFailure: func(err error) { failure.Store(&err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		begun := make(chan struct{}, 4)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		for i := range cap(begun) {
			running.Go(func() {
				key := "/" + strconv.Itoa(i)
				for n := 0; ; n++ {
					_, err := e.writer.Txn(ctx, &pb.TxnRequest{
						Compare: ifRevision(key, 0), Success: []*pb.RequestOp{putValue(key, "1")},
					})
					if err != nil {
						return
					}
					if n == 0 {
						begun <- struct{}{}
					}
				}
			})
		}
		for range cap(begun) {
			<-begun
		}
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		running.Wait()
		cancel()
		if err := failure.Load(); err != nil {
			t.Error(*err)
		}
	}
}

// Transactions, snapshots and requests for the progress of watches do not wait for each other for
// ever.
func TestProgressDuringSnapshots(t *testing.T) {
	t.Parallel()
	e := startEphemeral(t)
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	watched := e.Client().Watch(ctx, "/", clientv3.WithPrefix())
	others.Go(func() {
		for range watched {
		}
	})
	others.Go(func() {
		for ctx.Err() == nil {
			e.server.KV().Commit()
		}
	})
	others.Go(func() {
		for ctx.Err() == nil {
			if err := e.Client().RequestProgress(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	for i := range 2000 {
		if _, err := e.writer.Txn(t.Context(), &pb.TxnRequest{
			Compare: ifRevision("/"+strconv.Itoa(i), 0),
			Success: []*pb.RequestOp{putValue("/"+strconv.Itoa(i), "1")},
		}); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	others.Wait()
}

// A snapshot of the store waits for a transaction that looks up a lease, and the transaction does
// not wait for the snapshot.
func TestLeasedTransactionsDuringSnapshots(t *testing.T) {
	t.Parallel()
	e := startEphemeral(t)
	lease, err := e.Client().Grant(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	var snapshots sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	snapshots.Go(func() {
		for ctx.Err() == nil {
			e.server.KV().Commit()
		}
	})
	for revision := range int64(2000) {
		if revision == 1 {
			continue // the first change makes revision 2
		}
		_, err := e.Client().Txn(t.Context()).
			If(clientv3.Compare(clientv3.ModRevision("/leased"), "=", revision)).
			Then(clientv3.OpPut("/leased", "", clientv3.WithLease(lease.ID))).Commit()
		if err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	snapshots.Wait()
}
