package etcdstore

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	"k8s.io/klog/v2"
)

// feed passes every change in etcd on to informers, followers, appearances and lookouts. All of
// them share one etcd watch, whereas an informer that reads from the API needs a connection, a
// watch cache and its routes.
type feed struct {
	client clientv3.KV
	watch  clientv3.Watcher
	prefix string

	mu        sync.Mutex
	informers []*Informer
	followers []*follower
	waiting   []*appearance
	lookouts  []*lookout
	cancel    context.CancelFunc // nil until the first subscriber
	running   sync.WaitGroup
}

func newFeed(client *clientv3.Client, prefix string) *feed {
	return &feed{client: client.KV, watch: client.Watcher, prefix: prefix + "/"}
}

// subscribe adds an informer. From now on, the informer gets every change, so a list that it
// requests afterwards leaves no gap.
func (f *feed) subscribe(ctx context.Context, i *Informer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.informers = append(f.informers, i)
	if !f.start(ctx) {
		i.reload()
	}
}

// start starts the watch unless it has started, and reports whether it did. A watch that starts
// reloads all subscribers. It does not end with ctx, because they share it. The caller holds mu.
func (f *feed) start(ctx context.Context) bool {
	if f.cancel != nil {
		return false
	}
	ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	f.running.Go(func() { f.run(ctx) })
	return true
}

func (f *feed) unsubscribe(i *Informer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.informers = slices.DeleteFunc(f.informers, func(other *Informer) bool { return other == i })
}

func (f *feed) stop() {
	f.mu.Lock()
	cancel := f.cancel
	f.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	f.running.Wait()
}

// retryPause is how long the feed and its informers wait before they try again to read from etcd.
const retryPause = time.Second

// run watches etcd until ctx ends. If the watch breaks, for example because its revision was
// compacted, all subscribers list again.
func (f *feed) run(ctx context.Context) {
	ctx = feedStream(ctx)
	for ctx.Err() == nil {
		if err := f.follow(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Watching etcd for the informers failed, trying again")
			pause(ctx)
		}
	}
}

// feedStream lets the watches with ctx share a stream, on which no other watches of the server can
// delay them; see cacheStorage.
func feedStream(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs("cache", "informers"))
}

// onFeedStream returns a client whose watches are on the stream of the feed. With an external etcd,
// a stream of its own would cost six goroutines.
func onFeedStream(client *clientv3.Client) *clientv3.Client {
	shared := clientv3.NewCtxClient(client.Ctx())
	shared.KV, shared.Watcher = client.KV, feedWatcher{client.Watcher}
	return shared
}

type feedWatcher struct{ clientv3.Watcher }

func (w feedWatcher) Watch(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) clientv3.WatchChan {
	return w.Watcher.Watch(feedStream(ctx), key, opts...)
}

// follow passes on the changes from now on until the watch breaks.
func (f *feed) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx) // ends the watch on return
	defer cancel()
	now, err := f.client.Get(ctx, f.prefix, clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	f.mu.Lock()
	for _, i := range f.informers {
		i.reload()
	}
	for _, follower := range f.followers {
		follower.reload()
	}
	for _, w := range f.waiting {
		w.look()
	}
	for _, l := range f.lookouts {
		l.wake()
	}
	f.mu.Unlock()
	changes := f.watch.Watch(ctx, f.prefix, clientv3.WithPrefix(),
		clientv3.WithRev(now.Header.Revision+1))
	for change := range changes {
		if err := change.Err(); err != nil {
			return err
		}
		f.pass(change.Events)
	}
	return ctx.Err()
}

func (f *feed) pass(events []*clientv3.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		key := string(e.Kv.Key)
		for _, i := range f.informers {
			if strings.HasPrefix(key, i.prefix) {
				i.handle(e)
			}
		}
		for _, l := range f.lookouts {
			if l.keys[key] {
				l.wake()
			}
		}
		if e.Type == clientv3.EventTypePut {
			for _, w := range f.waiting {
				w.see(key)
			}
		}
	}
	for _, follower := range f.followers {
		follower.handle(events)
	}
}

// pause waits before another attempt.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(retryPause):
	}
}
