package chain

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kinproc/kinproc/chain/internal/etcdstore"
)

// Storage stores the objects of the chain's servers in etcd, under the same keys as kube-apiserver.
type Storage = etcdstore.Backend

// Informer reads the objects of a kind from etcd; see [Storage.Informer].
type Informer = etcdstore.Informer

// NewStorage returns a storage that uses client. The caller closes the client. All keys begin with
// prefix, which defaults to /registry. Old revisions are kept for historyKept.
func NewStorage(client *clientv3.Client, prefix string, historyKept time.Duration) *Storage {
	return etcdstore.New(client, prefix, historyKept)
}
