package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// A reset changes many objects at one revision R. No other write does, and two parts of Kubernetes
// rely on that:
//
//   - A client that lost its watch continues after the revision of the last event that it got. If
//     that was one of several events of R, the client would miss the others. So a watch that
//     begins exactly at R gets 410 Gone, and the client lists again. To let lists and watches that
//     come later begin elsewhere, another write follows the reset.
//   - A watch that begins at a watch cache which has seen only some of the events of R would miss
//     the others. So watches do not begin during a reset.
//
// Separate transactions, one for each object, would not have these problems. But a process that is
// killed between two of them would leave a state that never was, and so would a client see.

const (
	// resetMarks is the prefix of keys that are written together with a reset, one for each. Their
	// values name the directories of the changed keys.
	resetMarks = "kinproc/resets/"
	// resetDone is the key of the write that follows a reset.
	resetDone = "kinproc/reset-done"
	// marksKept limits the number of marks. Old revisions are compacted away in any case.
	marksKept = 100
)

// OwnKeys is the prefix of the keys outside of the prefix of objects that the backend writes.
const OwnKeys = "kinproc/"

// resetMark is a reset that has happened.
type resetMark struct {
	revision    uint64
	directories []string // of the changed keys
}

// Mark returns a key and a value that a reset writes together with its changes.
func (b *Backend) Mark(name string, changed []string) (key string, value []byte) {
	return resetMarks + name, []byte(strings.Join(directories(changed), "\n"))
}

func directories(keys []string) []string {
	var all []string
	for _, key := range keys {
		all = append(all, path.Dir(key)+"/")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// RecallResets reads the marks of the resets that the stored data has gone through.
func (b *Backend) RecallResets(ctx context.Context) error {
	found, err := b.client.KV.Get(ctx, resetMarks, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	if err != nil {
		return fmt.Errorf("get the marks of resets: %w", err)
	}
	if len(found.Kvs) == 0 {
		return nil
	}
	b.mu.Lock()
	for _, kv := range found.Kvs {
		b.resets = append(b.resets, resetMark{
			uint64(kv.ModRevision), strings.Split(string(kv.Value), "\n"),
		})
	}
	b.mu.Unlock()
	if found.Kvs[len(found.Kvs)-1].ModRevision < found.Header.Revision {
		return nil
	}
	if b.readOnly {
		return nil
	}
	return b.passReset(ctx) // the process was killed before it could
}

// passReset writes once more, so that no later list or watch begins at the revision of a reset.
func (b *Backend) passReset(ctx context.Context) error {
	_, err := b.client.KV.Put(ctx, resetDone, "")
	if err != nil {
		return fmt.Errorf("finish the reset: %w", err)
	}
	return nil
}

// Switch calls change while no watch begins. It changes keys in one transaction, together with
// those of [Backend.Mark], and returns the revision and the changed keys. Switch returns when the
// watch caches and the handlers of [Backend.FollowMetadata] have seen the changes.
func (b *Backend) Switch(
	ctx context.Context, change func() (revision int64, changed []string, err error),
) error {
	b.beginning.Lock()
	defer b.beginning.Unlock()
	revision, changed, err := change()
	if err != nil || len(changed) == 0 {
		return err
	}
	mark := resetMark{uint64(revision), directories(changed)}
	b.mu.Lock()
	b.resets = append(b.resets, mark)
	if old := len(b.resets) - marksKept; old > 0 {
		b.resets = slices.Delete(b.resets, 0, old)
	}
	var caches []*cachedOnWatch
	for c := range b.caches {
		if mark.touches(c.reader.prefix) {
			caches = append(caches, c)
		}
	}
	b.mu.Unlock()
	if err := b.passReset(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	for _, c := range caches {
		if err := c.catchUp(ctx, revision+1); err != nil {
			return fmt.Errorf("watch cache of %s: %w", c.config.GroupResource, err)
		}
	}
	return b.feed.catchUp(ctx, revision)
}

func (m resetMark) touches(prefix string) bool {
	return slices.ContainsFunc(m.directories, func(d string) bool {
		return strings.HasPrefix(d, prefix)
	})
}

// catchUp waits until the watch cache, if there is one, has seen all changes up to a revision.
func (s *cachedOnWatch) catchUp(ctx context.Context, revision int64) error {
	s.mu.Lock()
	c := s.cacher
	if s.stopped {
		c = nil
	}
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	defer s.hurry(ctx)()
	options := apistorage.GetOptions{
		IgnoreNotFound: true, ResourceVersion: strconv.FormatInt(revision, 10),
	}
	for {
		err := c.Get(ctx, s.config.ResourcePrefix+"/none", options, s.config.NewFunc())
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		s.mu.Lock()
		stopped := s.stopped
		s.mu.Unlock()
		if stopped || !apistorage.IsTooLargeResourceVersion(err) && !errors.Is(err,
			apistorage.ErrStorageNotReady) {
			return nil // it has ended, or begins anew
		}
	}
}

// checkReset returns an error if a watch must not begin after a resource version, because a reset
// changed several objects of the resource there.
func (s *cachedOnWatch) checkReset(from uint64) error {
	s.backend.mu.Lock()
	defer s.backend.mu.Unlock()
	for _, m := range s.backend.resets {
		if m.revision == from && m.touches(s.reader.prefix) {
			return apierrors.NewResourceExpired(fmt.Sprintf(
				"too old resource version: %d (several objects changed in it, "+
					"when the control plane was reset)", from))
		}
	}
	return nil
}

// Opened returns how many stores of each resource have been opened since the start.
func (b *Backend) Opened() map[schema.GroupResource]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.opened)
}

// Prefix returns the prefix of the keys of all objects, without a slash at the end.
func (b *Backend) Prefix() string { return path.Join("/", b.prefix) }
