package server

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kinproc/kinproc/chain/kind"
)

// maxOps is etcd's default limit of operations in a transaction.
const maxOps = 128

// writeFirstObjects writes the first objects but for the APIServices, as writeNew does.
func (p *plane) writeFirstObjects(ctx context.Context) (all bool, err error) {
	objects, err := p.firstObjects(ctx)
	if err != nil {
		return false, err
	}
	return p.writeNew(ctx, objects)
}

// writeAPIServices writes the APIServices of the versions that the chain serves, as writeNew does.
func (p *plane) writeAPIServices(ctx context.Context) (all bool, err error) {
	var services []kind.Object
	for _, gv := range p.chain.LocalGroupVersions() {
		service, err := apiService(gv)
		if err != nil {
			return false, err
		}
		services = append(services, service)
	}
	return p.writeNew(ctx, services)
}

// writeNew writes objects in transactions, each only if none of its objects exists. It reports
// whether it has written all of them.
func (p *plane) writeNew(ctx context.Context, objects []kind.Object) (all bool, err error) {
	encode, err := p.encoder()
	if err != nil {
		return false, err
	}
	all = true
	for some := range slices.Chunk(objects, maxOps) {
		var ifs []clientv3.Cmp
		var puts []clientv3.Op
		for _, o := range some {
			key, value, err := encode(o)
			if err != nil {
				return false, err
			}
			ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
			puts = append(puts, clientv3.OpPut(key, string(value)))
		}
		written, err := p.etcd.client.Txn(ctx).If(ifs...).Then(puts...).Commit()
		if err != nil {
			return false, fmt.Errorf("write the first objects: %w", err)
		}
		all = all && written.Succeeded
	}
	return all, nil
}
