package bootstrap

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kinproc/kinproc/chain/kind"
)

// maxOps is etcd's default limit of operations in a transaction.
const maxOps = 128

// First returns new first objects of all parts.
func (b *Bootstrap) First() ([]kind.Object, error) { return first(b.parts) }

// first returns the first objects of parts.
func first(parts []Part) ([]kind.Object, error) {
	var all []kind.Object
	for _, p := range parts {
		if p.First == nil {
			continue
		}
		objects, err := p.First()
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// writeFirst writes the first objects of parts in transactions, each only if none of its objects
// exists. It reports whether it has written all of them.
func (b *Bootstrap) writeFirst(ctx context.Context, parts []Part) (all bool, err error) {
	objects, err := first(parts)
	if err != nil {
		return false, err
	}
	encode, err := b.encoder()
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
		written, err := b.config.Etcd.Txn(ctx).If(ifs...).Then(puts...).Commit()
		if err != nil {
			return false, fmt.Errorf("write the first objects: %w", err)
		}
		all = all && written.Succeeded
	}
	return all, nil
}

// adopt makes the objects that describe a control plane describe this one. If the snapshot was
// taken from a control plane of this process, that happens in etcd, before anything is served. It
// reports whether it has found those that every control plane has, so that hooks need not look.
func (b *Bootstrap) adopt(ctx context.Context) (all bool, err error) {
	edits, err := b.Adopt()
	if err != nil {
		return false, err
	}
	everywhere := map[string]Edit{} // in every namespace
	for key, edit := range edits {
		if strings.Contains(key, everyNamespace) {
			everywhere[key] = edit
			delete(edits, key)
		}
	}
	found, err := b.editStored(ctx, edits)
	if err != nil || len(everywhere) == 0 {
		return found == len(edits), err
	}
	prefix := b.config.Storage.Prefix() + "/namespaces/"
	namespaces, err := b.config.Etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return false, fmt.Errorf("list the namespaces of the snapshot: %w", err)
	}
	named := map[string]Edit{}
	for _, kv := range namespaces.Kvs {
		name := strings.TrimPrefix(string(kv.Key), prefix)
		for key, edit := range everywhere {
			named[strings.Replace(key, everyNamespace, name, 1)] = edit
		}
	}
	_, err = b.editStored(ctx, named)
	return found == len(edits), err
}

// editStored changes stored objects, and returns how many of them exist. Nothing else may write
// them meanwhile.
func (b *Bootstrap) editStored(ctx context.Context, edits map[string]Edit) (found int, err error) {
	for some := range slices.Chunk(slices.Collect(maps.Keys(edits)), maxOps) {
		var gets, puts []clientv3.Op
		for _, object := range some {
			gets = append(gets, clientv3.OpGet(b.config.Storage.Prefix()+"/"+object))
		}
		read, err := b.config.Etcd.Txn(ctx).Then(gets...).Commit()
		if err != nil {
			return 0, fmt.Errorf("read objects of the snapshot: %w", err)
		}
		for i, r := range read.Responses {
			for _, kv := range r.GetResponseRange().GetKvs() {
				puts = append(puts, clientv3.OpPut(string(kv.Key), string(edits[some[i]](kv.Value))))
			}
		}
		if _, err := b.config.Etcd.Txn(ctx).Then(puts...).Commit(); err != nil {
			return 0, fmt.Errorf("write objects of the snapshot: %w", err)
		}
		found += len(puts)
	}
	return found, nil
}
