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

// beginFirstObjects begins to ensure the objects that every cluster has, but for the APIServices,
// which may go on while the chain is being made. The function that it returns waits, and returns
// what [plane.ensureFirstObjects] does.
func (p *plane) beginFirstObjects(ctx context.Context) (wait func() (all bool, err error)) {
	var all bool
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		all, err = p.ensureFirstObjects(ctx)
	}()
	return func() (bool, error) {
		<-done
		return all, err
	}
}

// ensureFirstObjects ensures the first objects but for the APIServices. It reports whether the
// storage holds all of them as they have to be, so that hooks need not look.
func (p *plane) ensureFirstObjects(ctx context.Context) (all bool, err error) {
	if err := p.storage.RecallResets(ctx); err != nil || p.options.ReadOnly {
		return false, err
	}
	if p.begunFrom() {
		return p.adoptObjects(ctx)
	}
	return p.writeFirstObjects(ctx)
}

// finishFirstObjects waits for the first objects, and adds the APIServices of the chain to those
// that it has written. It reports whether the storage holds all of them as they have to be.
func (p *plane) finishFirstObjects(
	ctx context.Context, wait func() (all bool, err error),
) (all bool, err error) {
	if all, err = wait(); err != nil || !all || p.begunFrom() {
		return all, err
	}
	return p.writeAPIServices(ctx)
}

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
		written, err := p.etcd.Client.Txn(ctx).If(ifs...).Then(puts...).Commit()
		if err != nil {
			return false, fmt.Errorf("write the first objects: %w", err)
		}
		all = all && written.Succeeded
	}
	return all, nil
}
