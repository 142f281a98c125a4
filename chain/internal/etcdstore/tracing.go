package etcdstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kinproc/kinproc/chain/internal/tracer"
)

// tracedKV records the etcd round trips of traced requests.
type tracedKV struct{ clientv3.KV }

func (kv tracedKV) Get(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	t := tracer.From(ctx)
	if t == nil {
		return kv.KV.Get(ctx, key, opts...)
	}
	end := t.Begin("etcd")
	resp, err := kv.KV.Get(ctx, key, opts...)
	end("get", outcome(key, err))
	return resp, err
}

func (kv tracedKV) Txn(ctx context.Context) clientv3.Txn {
	t := tracer.From(ctx)
	if t == nil {
		return kv.KV.Txn(ctx)
	}
	return tracedTxn{kv.KV.Txn(ctx), t}
}

type tracedTxn struct {
	clientv3.Txn
	trace *tracer.Trace
}

func (txn tracedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	return tracedTxn{txn.Txn.If(cs...), txn.trace}
}
func (txn tracedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	return tracedTxn{txn.Txn.Then(ops...), txn.trace}
}
func (txn tracedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	return tracedTxn{txn.Txn.Else(ops...), txn.trace}
}

func (txn tracedTxn) Commit() (*clientv3.TxnResponse, error) {
	end := txn.trace.Begin("etcd")
	resp, err := txn.Txn.Commit()
	switch {
	case err == nil && !resp.Succeeded:
		end("write", "the object had changed")
	default:
		end("write", outcome("", err))
	}
	return resp, err
}

func outcome(key string, err error) string {
	if err != nil {
		return fmt.Sprintf("%s: %v", key, err)
	}
	return key
}
