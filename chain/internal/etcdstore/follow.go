package etcdstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// MetadataHandler learns of all stored objects of all kinds. Its methods are called one after the
// other. Keys are relative to the prefix of the backend.
type MetadataHandler = interface {
	// Restart says that Put is about to be called for all objects that exist.
	Restart()
	// Put is called for an object that exists, that was created or that changed. Value is the
	// encoded object. Both are valid only during the call.
	Put(key string, object *metav1.PartialObjectMetadata, value []byte)
	// Delete is called for every key that is deleted, with the revision of the deletion.
	Delete(key string, revision int64)
	// Done says that all changes up to a revision have been passed on. Changes that were made in
	// one transaction are between two calls of Done.
	Done(revision int64)
}

// FollowMetadata passes the metadata of all objects on to h, first of those that exist, then of
// every change, until ctx ends. Events are left out. It shares the etcd watch of the informers, and
// decodes nothing but the metadata. It needs neither an informer nor a watch cache for each kind.
func (b *Backend) FollowMetadata(ctx context.Context, h MetadataHandler) {
	f := &follower{
		backend: b,
		handler: h,
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		change:  make(chan struct{}),
	}
	defer close(f.stopped)
	b.feed.follows(ctx, f)
	defer b.feed.unfollow(f)
	f.run(ctx)
}

func (f *feed) follows(ctx context.Context, new *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.followers = append(f.followers, new)
	if !f.start(ctx) {
		new.reload()
	}
}

func (f *feed) unfollow(old *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.followers = slices.DeleteFunc(f.followers, func(other *follower) bool { return other == old })
}

// catchUp waits until all followers have passed on the changes up to a revision.
func (f *feed) catchUp(ctx context.Context, revision int64) error {
	f.mu.Lock()
	followers := slices.Clone(f.followers)
	f.mu.Unlock()
	for _, follower := range followers {
		if err := follower.catchUp(ctx, revision); err != nil {
			return err
		}
	}
	return nil
}

// follower passes metadata on to a handler.
type follower struct {
	backend *Backend
	handler MetadataHandler
	wake    chan struct{} // a value says that there is something to do
	stopped chan struct{} // closed when the follower has stopped

	mu      sync.Mutex
	list    bool // whether to list all objects first
	pending []*clientv3.Event
	reached int64
	change  chan struct{} // closed when reached changes
}

// reload asks for a list. Changes that are pending are older than the list.
func (f *follower) reload() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list, f.pending = true, nil
	f.signal()
}

// handle takes changes of whole transactions.
func (f *follower) handle(events []*clientv3.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending = append(f.pending, events...)
	f.signal()
}

func (f *follower) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *follower) run(ctx context.Context) {
	var listed int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		f.mu.Lock()
		list, events := f.list, f.pending
		f.list = false
		if !list {
			f.pending = nil
		}
		f.mu.Unlock()
		if !list {
			f.pass(ctx, events, listed)
			continue
		}
		revision, err := f.listAll(ctx)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Listing the metadata of all objects failed, trying again")
			pause(ctx)
			f.reload()
			continue
		}
		listed = revision
		f.mu.Lock()
		f.signal() // for the changes that happened meanwhile
		f.mu.Unlock()
	}
}

// pass passes changes on that are newer than the last list.
func (f *follower) pass(ctx context.Context, events []*clientv3.Event, listed int64) {
	last := int64(0)
	for _, e := range events {
		if e.Kv.ModRevision <= listed {
			continue
		}
		last = e.Kv.ModRevision
		if e.Type == mvccpb.DELETE {
			if key := f.relative(e.Kv.Key); !isEvent(key) {
				f.handler.Delete(key, e.Kv.ModRevision)
			}
			continue
		}
		f.put(ctx, e.Kv)
	}
	if last > 0 {
		f.done(last)
	}
}

func (f *follower) done(revision int64) {
	f.handler.Done(revision)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reached = revision
	close(f.change)
	f.change = make(chan struct{})
}

func (f *follower) relative(key []byte) string {
	return strings.TrimPrefix(string(key), f.backend.feed.prefix)
}

// eventKeys is the prefix of the keys of events, which are numerous and own nothing.
const eventKeys = "events/"

func isEvent(key string) bool { return strings.HasPrefix(key, eventKeys) }

// put passes an object on, unless it cannot be decoded. Its reader notes such damage.
func (f *follower) put(ctx context.Context, kv *mvccpb.KeyValue) {
	key := f.relative(kv.Key)
	if isEvent(key) {
		return
	}
	var object metav1.PartialObjectMetadata
	value, err := f.backend.readMetadata(ctx, kv, &object)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The metadata of an object cannot be decoded", "key", key,
			"err", err)
		return
	}
	if object.UID != "" { // otherwise, it is not an object of the API
		f.handler.Put(key, &object, value)
	}
}

// listAll passes all objects on, and returns their revision.
func (f *follower) listAll(ctx context.Context) (int64, error) {
	prefix := f.backend.feed.prefix
	end := clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix))
	afterEvents := clientv3.GetPrefixRangeEnd(prefix + eventKeys)
	f.handler.Restart()
	revision := int64(0)
	for key, more := prefix, true; more; {
		page, err := f.backend.client.KV.Get(ctx, key, end, clientv3.WithLimit(listPage),
			clientv3.WithRev(revision))
		if err != nil {
			return 0, fmt.Errorf("list %s: %w", prefix, err)
		}
		revision, more = page.Header.Revision, page.More
		if len(page.Kvs) > 0 {
			key = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		}
		if isEvent(strings.TrimPrefix(key, prefix)) {
			key, more = afterEvents, true
		}
		for _, kv := range page.Kvs {
			f.put(ctx, kv)
		}
	}
	f.done(revision)
	return revision, nil
}

// catchUp waits until the changes up to a revision have been passed on.
func (f *follower) catchUp(ctx context.Context, revision int64) error {
	for {
		f.mu.Lock()
		reached, change := f.reached, f.change
		f.mu.Unlock()
		if reached >= revision {
			return nil
		}
		select {
		case <-change:
		case <-f.stopped:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
