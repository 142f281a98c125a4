package etcdstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/kinproc/kinproc/chain/internal/tracer"
	"github.com/kinproc/kinproc/chain/internal/writers"
)

// tracedKV records the etcd round trips of traced requests, and who writes. Reads see the view of
// their context.
type tracedKV struct {
	clientv3.KV
	backend *Backend
}

func (kv tracedKV) Get(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	read := kv.KV.Get
	if v := viewOf(ctx); v != nil {
		read = v.reader(kv.KV)
	}
	t := tracer.From(ctx)
	if t == nil {
		return read(ctx, key, opts...)
	}
	end := t.Begin("etcd")
	resp, err := read(ctx, key, opts...)
	if err != nil {
		end("get", fmt.Sprintf("%s: %v", key, err))
		return resp, err
	}
	size := 0
	for _, kv := range resp.Kvs {
		size += len(kv.Value)
	}
	end("get", fmt.Sprintf("%s: %d of %d keys, %d bytes, at revision %d", key, len(resp.Kvs),
		resp.Count, size, resp.Header.Revision))
	return resp, err
}

func (kv tracedKV) Txn(ctx context.Context) clientv3.Txn {
	txn := kv.KV.Txn(ctx)
	if writers.Known(ctx) {
		txn = &signedTxn{txn: txn, ctx: ctx, backend: kv.backend}
	}
	if t := tracer.From(ctx); t != nil {
		return tracedTxn{txn, t, nil}
	}
	return txn
}

// signedTxn is a transaction of a request whose sender is known.
type signedTxn struct {
	txn     clientv3.Txn
	ctx     context.Context
	backend *Backend
	// of the first change; a deletion has no value
	key, value []byte
}

func (s *signedTxn) If(cs ...clientv3.Cmp) clientv3.Txn { s.txn = s.txn.If(cs...); return s }

func (s *signedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		if s.key == nil && (op.IsPut() || op.IsDelete()) {
			s.key, s.value = op.KeyBytes(), op.ValueBytes()
		}
	}
	s.txn = s.txn.Then(ops...)
	return s
}

func (s *signedTxn) Else(ops ...clientv3.Op) clientv3.Txn { s.txn = s.txn.Else(ops...); return s }

func (s *signedTxn) Commit() (*clientv3.TxnResponse, error) {
	s.backend.writing.Add(1)
	defer s.backend.writing.Add(-1)
	resp, err := s.txn.Commit()
	if err == nil && resp.Succeeded {
		s.backend.wrote(s.ctx, resp.Header.Revision, writers.Sum(s.key, s.value))
	}
	return resp, err
}

// tracedTxn is a transaction of a traced request.
type tracedTxn struct {
	clientv3.Txn
	trace *tracer.Trace
	then  []clientv3.Op
}

func (txn tracedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	return tracedTxn{txn.Txn.If(cs...), txn.trace, txn.then}
}
func (txn tracedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	return tracedTxn{txn.Txn.Then(ops...), txn.trace, append(txn.then, ops...)}
}
func (txn tracedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	return tracedTxn{txn.Txn.Else(ops...), txn.trace, txn.then}
}

func (txn tracedTxn) Commit() (*clientv3.TxnResponse, error) {
	end := txn.trace.Begin("etcd")
	resp, err := txn.Txn.Commit()
	decision, what := "write", ""
	for _, op := range txn.then {
		switch {
		case op.IsPut():
			what = fmt.Sprintf("%s: %d bytes", op.KeyBytes(), len(op.ValueBytes()))
		case op.IsDelete():
			decision, what = "delete", string(op.KeyBytes())
		}
	}
	switch {
	case err != nil:
		end(decision, fmt.Sprintf("%s: %v", what, err))
	case !resp.Succeeded:
		end(decision, what+": the object had changed")
	default:
		end(decision, fmt.Sprintf("%s, at revision %d", what, resp.Header.Revision))
	}
	return resp, err
}

// Create adds to the trace of a request what the object is like that is stored. Most changes to it
// are known from validation, but that of custom resources does not tell.
func (s *cachedOnWatch) Create(
	ctx context.Context, key string, obj, out runtime.Object, ttl uint64,
) error {
	tracer.From(ctx).Prepared(obj)
	return s.Interface.Create(ctx, key, obj, out, ttl)
}

// tracedUpdate is like Create, for the object that an update function returns.
func tracedUpdate(ctx context.Context, update apistorage.UpdateFunc) apistorage.UpdateFunc {
	t := tracer.From(ctx)
	if t == nil {
		return update
	}
	return func(
		input runtime.Object, meta apistorage.ResponseMeta,
	) (runtime.Object, *uint64, error) {
		output, ttl, err := update(input, meta)
		if err == nil {
			t.Prepared(output)
		}
		return output, ttl, err
	}
}
