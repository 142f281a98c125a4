package etcdstore

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Appeared waits until there is an object below path. It returns an error if ctx ends first. It
// needs only an etcd watch, whereas a watch through the API needs a watch cache. Controllers of
// objects that most control planes never have can wait here for the first one.
func (b *Backend) Appeared(ctx context.Context, path string) error {
	ctx, cancel := context.WithCancel(ctx) // so that the etcd watch ends on return
	defer cancel()
	prefix := b.prefix + "/" + strings.Trim(path, "/") + "/"
	for {
		found, err := b.client.KV.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return fmt.Errorf("count the keys below %s: %w", prefix, err)
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
		case <-ctx.Done(): // this closes changes too, unless etcd is in trouble
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// The watch ended because its revision was compacted.
	}
}
