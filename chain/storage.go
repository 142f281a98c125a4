package chain

import (
	"github.com/kinproc/kinproc/chain/internal/etcdstore"
)

// Storage stores the objects of the chain's servers in etcd, under the same keys as kube-apiserver.
type Storage = etcdstore.Backend

// Informer reads the objects of a kind from etcd; see [Storage.Informer].
type Informer = etcdstore.Informer

// StorageConfig says where and how objects are stored.
type StorageConfig = etcdstore.Config

// Database is the database of an embedded etcd, and Room says how full it is.
type (
	Database = etcdstore.Database
	Room     = etcdstore.Room
)

// NewStorage returns a storage. It is stopped with [Storage.Stop].
func NewStorage(c StorageConfig) *Storage { return etcdstore.New(c) }
