package chain

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kinproc/kinproc/chain/internal/etcdstore"
)

// Storage keeps the objects of the chain's servers in etcd, under kube-apiserver's keys.
type Storage = etcdstore.Backend

// NewStorage makes a storage on client, which stays the caller's to close. All keys begin with
// prefix; if empty, with /registry.
func NewStorage(client *clientv3.Client, prefix string) *Storage {
	return etcdstore.New(client, prefix)
}
