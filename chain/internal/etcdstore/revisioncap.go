package etcdstore

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/chain/internal/writers"
)

// RevisionsKept is how many revisions are kept at most where they are kept for long.
const RevisionsKept = 100_000

// compactionKey is the key at which the compactors of API servers that share an etcd take turns.
const compactionKey = "compact_rev_key"

// revisionCap removes the oldest revisions when there are too many, whereas the compactor removes
// those that are too old. Its zero value does nothing.
type revisionCap struct {
	client  *clientv3.Client
	kept    int64
	writers *writers.Memory
	ctx     context.Context
	cancel  context.CancelFunc

	mu      sync.Mutex
	next    int64 // the revision at which to compact
	running sync.WaitGroup
}

func (c *revisionCap) start(client *clientv3.Client, w *writers.Memory, kept int64) {
	c.client, c.writers, c.kept, c.next = client, w, kept, kept
	c.ctx, c.cancel = context.WithCancel(client.Ctx())
}

// reached says that a revision has been written.
func (c *revisionCap) reached(revision int64) {
	if c.cancel == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if revision < c.next || c.ctx.Err() != nil {
		return
	}
	c.next = revision + max(c.kept/10, 1) // each time, all keys are read
	oldest := revision - c.kept + c.kept/10
	c.running.Go(func() {
		if err := c.compact(oldest); err != nil && c.ctx.Err() == nil {
			klog.FromContext(c.ctx).Error(err, "Removing old revisions failed, trying again later")
		}
	})
}

// compact removes the revisions before the given one. It takes its turn as compactors do, so that
// none of them fails because another one has been faster.
func (c *revisionCap) compact(revision int64) error {
	last, err := c.client.Get(c.ctx, compactionKey)
	if err != nil {
		return fmt.Errorf("read %s: %w", compactionKey, err)
	}
	version := int64(0)
	if len(last.Kvs) > 0 {
		version = last.Kvs[0].Version
		if before, err := strconv.ParseInt(string(last.Kvs[0].Value), 10, 64); err == nil &&
			before >= revision {
			return nil
		}
	}
	if _, _, _, err = etcd3.Compact(c.ctx, c.client, version, revision); err != nil {
		return err
	}
	c.writers.Forget(revision)
	return nil
}

func (c *revisionCap) stop() {
	if c.cancel == nil {
		return
	}
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	c.running.Wait()
}
