package etcdstore

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Appeared waits until there is an object below path, or ctx ends: for that it returns an error. Waiting costs an etcd watch, whereas
// watching through the API takes a watch cache: whoever is for objects that most control planes never see waits for the first of them.
func (b *Backend) Appeared(ctx context.Context, path string) error {
	ctx, cancel := context.WithCancel(ctx) // ends the etcd watch
	defer cancel()
	prefix := b.prefix + "/" + strings.Trim(path, "/") + "/"
	for {
		found, err := b.client.KV.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return fmt.Errorf("look below %s: %w", prefix, err)
		}
		if found.Count > 0 {
			return nil
		}
		changes := b.client.Watcher.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(found.Header.Revision+1), clientv3.WithFilterDelete(), clientv3.WithKeysOnly())
		select {
		case change, ok := <-changes:
			if ok && change.Err() == nil {
				return nil
			}
		case <-ctx.Done(): // which closes changes too, unless etcd is in trouble
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// The watch ended, for the revision was compacted.
	}
}
