package etcdstore

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/chain/internal/writers"
)

// RevisionsKept is how many revisions are kept at most where they are kept for long.
const RevisionsKept = 100_000

// bytesKept is about how many bytes such revisions have together at most. etcd refuses to write
// when its database has 2 GiB.
const bytesKept = 256 << 20

// revisionCap removes the oldest revisions when there are too many or when they are too large,
// whereas the compactor removes those that are too old. Its zero value does nothing.
type revisionCap struct {
	client      *clientv3.Client
	kept, bytes int64 // revisions, and their size
	writers     *writers.Memory
	ctx         context.Context
	cancel      context.CancelFunc

	mu      sync.Mutex
	next    int64 // the revision at which there are too many
	written int64 // bytes since the start
	marks   []mark
	running sync.WaitGroup
}

// mark says how many bytes had been written when a revision was.
type mark struct{ revision, written int64 }

func (c *revisionCap) start(client *clientv3.Client, w *writers.Memory, kept, bytes int64) {
	c.client, c.writers, c.kept, c.bytes, c.next = client, w, kept, bytes, kept
	c.ctx, c.cancel = context.WithCancel(client.Ctx())
}

// reached says that a revision with some bytes has been written.
func (c *revisionCap) reached(revision, bytes int64) {
	if c.cancel == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	oldest := c.tooLarge(revision, bytes)
	if revision >= c.next {
		c.next = revision + max(c.kept/10, 1) // each time, all keys are read
		oldest = max(oldest, revision-c.kept+c.kept/10)
	}
	if oldest == 0 || c.ctx.Err() != nil {
		return
	}
	c.running.Go(func() {
		if err := c.compact(oldest); err != nil && c.ctx.Err() == nil {
			klog.FromContext(c.ctx).Error(err, "Removing old revisions failed, trying again later")
		}
	})
}

// tooLarge returns the revision before which the revisions are too large, or 0. The caller holds
// the mutex.
func (c *revisionCap) tooLarge(revision, bytes int64) (oldest int64) {
	c.written += bytes
	if n := len(c.marks); n == 0 || c.written-c.marks[n-1].written > c.bytes/8 {
		c.marks = append(c.marks, mark{revision, c.written})
	}
	if c.written-c.marks[0].written <= c.bytes {
		return 0
	}
	for c.written-c.marks[0].written > c.bytes*3/4 && len(c.marks) > 1 {
		c.marks = c.marks[1:]
	}
	return c.marks[0].revision
}

// compact removes the revisions before the given one. It takes its turn as compactors do. If
// another one was faster, but has removed less, it takes the next turn.
func (c *revisionCap) compact(revision int64) error {
	var version, compacted int64 // as far as is known
	for compacted < revision {
		var err error
		version, _, compacted, err = etcd3.Compact(c.ctx, c.client, version, revision)
		if errors.Is(err, rpctypes.ErrCompacted) {
			break // a later turn was faster
		}
		if err != nil {
			return err
		}
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
