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

// RevisionsKept is how many revisions are kept at most.
const RevisionsKept = 100_000

// maxBytesKept is about how many bytes old revisions have together at most.
const maxBytesKept = 256 << 20

// bytesKept returns about how many bytes old revisions have together at most: not more than a
// quarter of the quota of the database, if it is known.
func bytesKept(d Database) int64 {
	if d == nil {
		return maxBytesKept
	}
	return min(maxBytesKept, d.Room().Quota/4)
}

// revisionCap removes the oldest revisions when there are too many or when they are too large,
// whereas the compactor removes those that are too old.
type revisionCap struct {
	client      *clientv3.Client
	kept, bytes int64    // revisions, and their size
	database    Database // nil: an external etcd
	writers     *writers.Memory
	ctx         context.Context
	cancel      context.CancelFunc

	mu       sync.Mutex
	next     int64 // the revision at which there are too many
	replaced int64 // bytes that later revisions have replaced
	base     int64 // of them, what has been removed
	marks    []mark
	running  sync.WaitGroup
}

// mark says how many bytes had been replaced by a revision.
type mark struct{ revision, replaced int64 }

func (c *revisionCap) start(client *clientv3.Client, w *writers.Memory, d Database, kept, bytes int64) {
	c.client, c.writers, c.database = client, w, d
	c.kept, c.bytes, c.next = kept, bytes, kept
	c.ctx, c.cancel = context.WithCancel(client.Ctx())
}

// reached says that a revision has replaced values of some bytes.
func (c *revisionCap) reached(revision, replaced int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldest := c.tooLarge(revision, replaced)
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
func (c *revisionCap) tooLarge(revision, replaced int64) (oldest int64) {
	if c.database != nil && c.database.Room().Used <= c.bytes {
		c.marks = nil // all that is stored is not too large
		return 0
	}
	if len(c.marks) == 0 {
		// What has been replaced so far is not known. At first, it is assumed to be much.
		c.replaced, c.base = 0, 0
		if c.database != nil {
			c.replaced = c.bytes * 3 / 4
		}
		c.marks = append(c.marks, mark{revision, c.replaced})
	}
	c.replaced += replaced
	if c.replaced-c.marks[len(c.marks)-1].replaced > c.bytes/8 {
		c.marks = append(c.marks, mark{revision, c.replaced})
	}
	if c.replaced-c.base <= c.bytes {
		return 0
	}
	for c.replaced-c.marks[0].replaced > c.bytes*3/4 && len(c.marks) > 1 {
		c.marks = c.marks[1:]
	}
	c.base = c.marks[0].replaced
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
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	c.running.Wait()
}
