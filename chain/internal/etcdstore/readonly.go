package etcdstore

import (
	"context"
	"net/http"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RefuseWrites makes every write of an object fail, whether a request or the server itself makes
// it. It must be called before a store is opened.
func (b *Backend) RefuseWrites() {
	b.readOnly = true
	b.client.KV = readOnlyKV{b.client.KV}
}

// readOnlyKV refuses transactions, by which stores write.
type readOnlyKV struct{ clientv3.KV }

func (kv readOnlyKV) Txn(context.Context) clientv3.Txn { return refusedTxn{} }

type refusedTxn struct{}

func (t refusedTxn) If(...clientv3.Cmp) clientv3.Txn  { return t }
func (t refusedTxn) Then(...clientv3.Op) clientv3.Txn { return t }
func (t refusedTxn) Else(...clientv3.Op) clientv3.Txn { return t }

func (refusedTxn) Commit() (*clientv3.TxnResponse, error) {
	return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "the control plane is read-only",
	}}
}
