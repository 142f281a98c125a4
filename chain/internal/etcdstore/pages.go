package etcdstore

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/metadata"
)

// manyKeys is the number of keys below a prefix from which on a counter counts them.
const manyKeys = 2000

// pager reads the pages of lists. For each page, etcd walks over all keys up to the end of the list
// to count them, which takes longer than the page itself if they are many. A pager asks etcd for no
// more keys than the page has, and a counter for the number of the others.
type pager struct {
	etcdkubernetes.Interface
	counters *counters
}

// List implements etcdkubernetes.Interface.
func (p pager) List(
	ctx context.Context, prefix string, opts etcdkubernetes.ListOptions,
) (etcdkubernetes.ListResponse, error) {
	if opts.Limit == 0 || viewOf(ctx) != nil {
		return p.Interface.List(ctx, prefix, opts)
	}
	if c := p.counters.of(prefix); c != nil {
		if page, ok, err := c.page(ctx, opts); ok || err != nil {
			return page, err
		}
	}
	page, err := p.Interface.List(ctx, prefix, opts)
	if err == nil && page.Count >= manyKeys {
		p.counters.start(prefix)
	}
	return page, err
}

// counters are the counters of a backend.
type counters struct {
	client *clientv3.Client
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	all     map[string]*counter // by prefix
	running sync.WaitGroup
}

func newCounters(client *clientv3.Client) *counters {
	cs := &counters{client: client, all: map[string]*counter{}}
	cs.ctx, cs.cancel = context.WithCancel(client.Ctx())
	return cs
}

func (cs *counters) of(prefix string) *counter {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.all[prefix]
}

// start starts a counter of the keys below prefix, unless there is one.
func (cs *counters) start(prefix string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.all[prefix] != nil || cs.ctx.Err() != nil {
		return
	}
	c := &counter{counters: cs, prefix: prefix, used: time.Now()}
	cs.all[prefix] = c
	cs.running.Go(func() {
		c.run(cs.ctx)
		cs.mu.Lock()
		defer cs.mu.Unlock()
		delete(cs.all, prefix)
	})
}

// stop stops all counters and waits for them.
func (cs *counters) stop() {
	cs.mu.Lock()
	cs.cancel()
	cs.mu.Unlock()
	cs.running.Wait()
}

// counter knows the keys below a prefix, which it follows by a watch. It ends when the watch fails,
// or when nobody has used it for a while.
type counter struct {
	counters *counters
	prefix   string

	mu       sync.Mutex
	keys     sortedKeys
	revision int64 // of the keys; 0 until they have been read
	// changes are the latest creations and deletions, in their order. They tell what the keys were
	// at each revision from oldest on.
	changes []keyChange
	oldest  int64
	reached chan struct{} // closed by the next change of revision, if somebody waits for it
	used    time.Time
}

// keyChange is the creation or the deletion of a key.
type keyChange struct {
	key      string
	revision int64
	by       int // 1 or -1
}

const (
	// changesKept limits the changes that a counter remembers.
	changesKept = 16384
	// keysRead is the number of keys that a counter reads at once when it starts.
	keysRead = 10_000
	// counterKept is how long a counter is kept that nobody uses.
	counterKept = 10 * time.Minute
	// reachTimeout limits the wait for a counter. To let etcd count takes about as long.
	reachTimeout = 100 * time.Millisecond
)

// page reads a page. It reports false if the keys are not known at the revision of the page.
func (c *counter) page(
	ctx context.Context, opts etcdkubernetes.ListOptions,
) (page etcdkubernetes.ListResponse, ok bool, err error) {
	first, last := c.prefix, clientv3.GetPrefixRangeEnd(c.prefix)
	if opts.Continue != "" {
		first = opts.Continue
	}
	// One read suffices, unless keys have been deleted meanwhile.
	for from, at := first, opts.Revision; ; {
		wanted := opts.Limit - int64(len(page.Kvs))
		end, known := c.end(from, wanted)
		if !known {
			return page, false, nil
		}
		read, err := c.counters.client.Get(ctx, from, clientv3.WithRange(end),
			clientv3.WithLimit(wanted), clientv3.WithRev(at))
		if err != nil {
			return page, false, err
		}
		page.Kvs = append(page.Kvs, read.Kvs...)
		if page.Revision == 0 {
			page.Revision = read.Header.Revision
			if at == 0 {
				at = page.Revision
			}
			if page.Count, known = c.countAt(ctx, first, at); !known {
				return page, false, nil
			}
		}
		full := int64(len(page.Kvs)) == min(opts.Limit, page.Count)
		if full || end == last {
			return page, full, nil
		}
		from = end
	}
}

// end returns the first key after the next ones, or the end of all keys below the prefix.
func (c *counter) end(from string, limit int64) (end string, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.revision == 0 {
		return "", false
	}
	c.used = time.Now()
	if limit < int64(c.keys.length) {
		if end = c.keys.at(c.keys.rank(from) + int(limit)); end != "" {
			return end, true
		}
	}
	return clientv3.GetPrefixRangeEnd(c.prefix), true
}

// countAt returns the number of keys at a revision, beginning with from.
func (c *counter) countAt(ctx context.Context, from string, revision int64) (int64, bool) {
	if !c.reach(ctx, revision) {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if revision < c.oldest {
		return 0, false
	}
	n := c.keys.length - c.keys.rank(from)
	for _, change := range slices.Backward(c.changes) {
		if change.revision <= revision {
			break
		}
		if change.key >= from {
			n -= change.by
		}
	}
	return int64(n), true
}

// latest returns the number of keys as far as the counter knows.
func (c *counter) latest() (n int64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = time.Now()
	return int64(c.keys.length), c.revision != 0
}

// reach waits until the counter knows the keys at a revision, and reports whether it does.
func (c *counter) reach(ctx context.Context, revision int64) bool {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	for pause := time.Millisecond; ; pause *= 2 {
		c.mu.Lock()
		if c.revision >= revision {
			c.mu.Unlock()
			return true
		}
		if c.reached == nil {
			c.reached = make(chan struct{})
		}
		reached := c.reached
		c.mu.Unlock()
		if err := c.counters.client.RequestProgress(c.onStream(ctx)); err != nil {
			return false
		}
		select {
		case <-reached:
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
}

// onStream returns a context for the counter's own stream of etcd watches. See [cacheStorage].
func (c *counter) onStream(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs("counter", c.prefix))
}

func (c *counter) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	revision, err := c.read(ctx)
	if err != nil {
		return // pages are read without the counter
	}
	for change := range c.counters.client.Watch(c.onStream(ctx), c.prefix, clientv3.WithPrefix(),
		clientv3.WithRev(revision+1)) {
		if change.Err() != nil || !c.apply(change) {
			return
		}
	}
}

// read reads the keys, and returns their revision.
func (c *counter) read(ctx context.Context) (revision int64, err error) {
	var keys sortedKeys
	for from := c.prefix; ; {
		read, err := c.counters.client.Get(ctx, from, clientv3.WithKeysOnly(),
			clientv3.WithRange(clientv3.GetPrefixRangeEnd(c.prefix)), clientv3.WithLimit(keysRead),
			clientv3.WithRev(revision))
		if err != nil {
			return 0, err
		}
		if revision == 0 {
			revision = read.Header.Revision
		}
		for _, kv := range read.Kvs {
			keys.insert(string(kv.Key))
		}
		if !read.More {
			break
		}
		from = string(read.Kvs[len(read.Kvs)-1].Key) + "\x00"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys, c.revision, c.oldest = keys, revision, revision
	return revision, nil
}

// apply applies what the watch says, and reports whether somebody still uses the counter.
func (c *counter) apply(r clientv3.WatchResponse) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range r.Events {
		c.revision = e.Kv.ModRevision
		key := string(e.Kv.Key)
		switch {
		case e.IsCreate() && c.keys.insert(key):
			c.changes = append(c.changes, keyChange{key, c.revision, 1})
		case e.Type == clientv3.EventTypeDelete && c.keys.remove(key):
			c.changes = append(c.changes, keyChange{key, c.revision, -1})
		}
	}
	if r.IsProgressNotify() {
		c.revision = max(c.revision, r.Header.Revision)
	}
	if len(c.changes) > changesKept {
		forgotten := len(c.changes) / 2
		c.oldest = c.changes[forgotten-1].revision
		c.changes = slices.Clone(c.changes[forgotten:])
	}
	if c.reached != nil {
		close(c.reached)
		c.reached = nil
	}
	return time.Since(c.used) < counterKept
}
