package etcdstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/chain/internal/stored"
	"github.com/kinproc/kinproc/chain/internal/writers"
)

// maxHistoryBytes limits the stored objects of a history.
const maxHistoryBytes = 16 << 20

// searchTime is how long a search for versions lasts before it returns what it has found.
const searchTime = 10 * time.Second

// Errors of [Backend.VersionAt].
var (
	ErrNotKept = errors.New("older versions are no longer kept")
	ErrFuture  = errors.New("there is no such revision yet")
)

// VersionsOf selects versions of objects.
type VersionsOf struct {
	// Resource is empty for all resources.
	Resource schema.GroupResource
	// Namespace is empty for all namespaces and for cluster-scoped objects.
	Namespace string
	// Name is empty for all objects.
	Name   string
	Labels labels.Selector // nil for all
	// Allowed, if set, reports whether the objects of a resource may be shown, and since which
	// revision. Those of an earlier namespace of the same name may not; see
	// [Backend.NamespaceSince].
	Allowed func(schema.GroupResource) (since int64, may bool)
	// Before, if not 0, is the revision before which versions are looked for.
	Before int64
	Limit  int
}

// allowed returns what Allowed says about a resource.
func (of VersionsOf) allowed(resource schema.GroupResource) (since int64, may bool) {
	if of.Allowed == nil {
		return 0, true
	}
	return of.Allowed(resource)
}

// change is an event, and the object before it once [Backend.before] has read it.
type change struct {
	*clientv3.Event
	resource        schema.GroupResource
	namespace, name string
	since           int64 // the revision before which nothing may be shown
}

// Versions returns the newest versions. A search that takes long says where it has stopped.
func (b *Backend) Versions(ctx context.Context, of VersionsOf) (*history.History, error) {
	return b.versions(ctx, of, b.patience)
}

// versions is Versions with a search that takes about as long as is said, or any time if that is 0.
func (b *Backend) versions(
	ctx context.Context, of VersionsOf, patience time.Duration,
) (*history.History, error) {
	end, err := b.turns.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var until time.Time
	if patience > 0 {
		until = time.Now().Add(patience)
	}
	now, err := b.current(ctx)
	if err != nil {
		return nil, err
	}
	found := &history.History{Revision: now, Versions: []history.Version{}}
	changes, err := b.newest(ctx, of, found, until)
	if err != nil {
		return nil, err
	}
	if len(changes) == 0 && of.Name != "" && found.Before == 0 {
		// The object may not have changed since the oldest revision.
		at, err := b.VersionAt(ctx, of, 0)
		if err != nil || at == nil || of.Before != 0 && at.Revision >= of.Before {
			return found, err
		}
		found.Versions = append(found.Versions, *at)
	}
	size := 0
	for _, c := range slices.Backward(changes) {
		var v history.Version
		if err := b.turns.take(ctx, func() { v = b.version(ctx, c) }); err != nil {
			return nil, err
		}
		if size += sizeOf(&v); size > maxHistoryBytes && len(found.Versions) > 0 {
			found.More = true
			break
		}
		found.Versions = append(found.Versions, v)
	}
	slices.Reverse(found.Versions)
	return found, ctx.Err()
}

func sizeOf(v *history.Version) int {
	size := len(v.Object)
	for _, c := range v.Changes {
		size += len(c.Path) + len(c.Before) + len(c.After)
	}
	return size
}

// newest returns the newest selected changes, in order. It begins at the newest one, so that it
// need not read everything that etcd keeps. It says in found what is missing.
func (b *Backend) newest(
	ctx context.Context, of VersionsOf, found *history.History, until time.Time,
) (all []*change, err error) {
	key, options := b.keys(of)
	size, oldest, window := 0, int64(1), int64(revisionsAtOnce)
	if of.Resource.Resource != "" {
		since, may := of.allowed(of.Resource)
		if !may {
			return nil, nil
		}
		oldest = max(oldest, since)
	}
	last := found.Revision
	if of.Before != 0 {
		last = min(last, of.Before-1)
	}
	for last >= oldest && !found.More && ctx.Err() == nil {
		first := max(last-window+1, oldest)
		var part []*change
		var from, compacted int64
		if taken := b.turns.take(ctx, func() {
			from, compacted, err = b.between(ctx, first, last, key, options, func(e *clientv3.Event) {
				c := b.selected(ctx, of, e)
				if c == nil {
					return
				}
				part, size = append(part, c), size+len(c.Kv.Value)
				for n := len(part) + len(all); n > of.Limit || size > maxHistoryBytes && n > 1; n-- {
					if len(part) == 0 {
						break
					}
					size -= len(part[0].Kv.Value)
					part, found.More = part[1:], true
				}
			})
		}); taken != nil {
			return nil, taken
		}
		switch {
		case err != nil:
			return nil, err
		case compacted >= first:
			oldest, found.Compacted = compacted+1, true
			continue
		}
		all, last = append(part, all...), from-1
		if !b.embedded {
			window *= 4 // the watch of each window reads up to now
		}
		if !until.IsZero() && time.Now().After(until) && last >= oldest && !found.More {
			found.Before = last + 1
			break
		}
	}
	return all, ctx.Err()
}

// FollowVersions calls report for the versions that etcd keeps and then for each new one, until ctx
// ends.
func (b *Backend) FollowVersions(
	ctx context.Context, of VersionsOf, report func(history.Version) error,
) error {
	found, err := b.versions(ctx, of, 0)
	if err != nil {
		return err
	}
	for _, v := range found.Versions {
		if err := report(v); err != nil {
			return err
		}
	}
	key, options := b.keys(of)
	ctx, cancel := context.WithCancel(withoutSharing(ctx))
	defer cancel()
	for r := range b.client.Watch(ctx, key, append(options, clientv3.WithRev(found.Revision+1))...) {
		if err := r.Err(); err != nil {
			return fmt.Errorf("watch %s: %w", key, err)
		}
		for _, e := range r.Events {
			if c := b.selected(ctx, of, e); c != nil {
				if same, err := b.inSameNamespace(ctx, c); err != nil || !same {
					return err
				}
				b.awaitWriter(ctx, e.Kv.ModRevision)
				if err := report(b.version(ctx, c)); err != nil {
					return err
				}
			}
		}
	}
	return ctx.Err()
}

// awaitWriter waits until it is known who has written a revision. A watch may see a revision before
// its writer does.
func (b *Backend) awaitWriter(ctx context.Context, revision int64) {
	for wait := time.Millisecond; wait < 50*time.Millisecond; wait *= 2 {
		if b.writers.Written(revision) || b.writing.Load() == 0 {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// VersionAt returns an object as it was at a revision, or as it is if the revision is 0. It returns
// nil if there was none.
func (b *Backend) VersionAt(
	ctx context.Context, of VersionsOf, revision int64,
) (*history.Version, error) {
	key, _ := b.keys(of)
	since, may := of.allowed(of.Resource)
	if !may || !b.has(of, key) || revision != 0 && revision < since {
		return nil, nil
	}
	found, err := b.client.KV.Get(ctx, key, clientv3.WithRev(revision))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return nil, ErrNotKept
	case errors.Is(err, rpctypes.ErrFutureRev):
		return nil, ErrFuture
	case err != nil:
		return nil, fmt.Errorf("read %s at revision %d: %w", key, revision, err)
	case len(found.Kvs) == 0:
		return nil, nil
	}
	c := b.selected(ctx, of, &clientv3.Event{Type: mvccpb.PUT, Kv: found.Kvs[0]})
	if c == nil {
		return nil, nil
	}
	v := b.version(ctx, c)
	return &v, nil
}

// RevisionAt returns the newest revision that was written at a time or earlier, among those of
// which the writer is known. If there is none, it returns a StatusError with the reason Expired.
func (b *Backend) RevisionAt(ctx context.Context, at time.Time) (int64, error) {
	for limit := int64(math.MaxInt64); ; {
		revision := b.writers.Before(at, limit)
		if revision == 0 {
			return 0, apierrors.NewResourceExpired(fmt.Sprintf(
				"no revision is known that was written by %s", at.Local().Format(time.DateTime)))
		}
		known, kept, err := b.knows(ctx, revision)
		switch {
		case err != nil:
			return 0, err
		case !kept:
			return 0, apierrors.NewResourceExpired(fmt.Sprintf(
				"revision %d, which was the newest one at %s, is no longer kept", revision,
				at.Local().Format(time.DateTime)))
		case known:
			return revision, nil
		}
		limit = revision
	}
}

// knows reports whether what is remembered of a revision is about this etcd. If that cannot be said
// because etcd has removed the revision, it is not kept.
func (b *Backend) knows(ctx context.Context, revision int64) (known, kept bool, err error) {
	if b.writers.Written(revision) {
		return true, true, nil
	}
	_, compacted, err := b.between(ctx, revision, revision, b.feed.prefix,
		[]clientv3.OpOption{clientv3.WithPrefix()}, func(e *clientv3.Event) {
			who, _ := b.writers.Of(revision, writers.Sum(e.Kv.Key, e.Kv.Value))
			known = known || who != nil
		})
	return known, compacted == 0, err
}

// shortestMoment is the duration of moments if there are few.
const shortestMoment = 10 * time.Millisecond

// Moments returns the times at which something was written that etcd still keeps, among those of
// which the writer is known.
func (b *Backend) Moments(ctx context.Context) ([]history.Moment, error) {
	moments := b.writers.Moments(shortestMoment, history.MaxMoments)
	var failed error
	oldest := sort.Search(len(moments), func(i int) bool {
		_, err := b.client.KV.Get(ctx, b.feed.prefix, clientv3.WithRev(moments[i].Revision),
			clientv3.WithCountOnly())
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) &&
			!errors.Is(err, rpctypes.ErrFutureRev) {
			failed = fmt.Errorf("read revision %d: %w", moments[i].Revision, err)
		}
		return !errors.Is(err, rpctypes.ErrCompacted)
	})
	if failed != nil {
		return nil, failed
	}
	kept := moments[:0]
	for _, m := range moments[oldest:] {
		known, _, err := b.knows(ctx, m.Revision)
		if err != nil {
			return nil, err
		}
		if known {
			kept = append(kept, m)
		}
	}
	return kept, nil
}

// KeepWriters keeps in a directory who writes, so that the next process knows it, and recalls who
// has written. If nothing may be written, it only recalls. It must be called before the first
// store is made, and only for an etcd that nobody else uses.
func (b *Backend) KeepWriters(ctx context.Context, dir string) error {
	now, err := b.current(ctx)
	if err != nil {
		return err
	}
	b.writers.Keep(dir, now, b.readOnly, func(err error) {
		klog.FromContext(b.client.Ctx()).Info("The history will have gaps", "reason", err.Error())
	})
	return nil
}

// current returns the current revision of etcd.
func (b *Backend) current(ctx context.Context) (int64, error) {
	now, err := b.client.KV.Get(ctx, b.feed.prefix, clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("read the current revision: %w", err)
	}
	return now.Header.Revision, nil
}

// keys returns the range of the keys that may be selected.
func (b *Backend) keys(of VersionsOf) (string, []clientv3.OpOption) {
	switch {
	case of.Resource.Resource == "":
		return b.feed.prefix, []clientv3.OpOption{clientv3.WithPrefix()}
	case of.Name != "":
		return b.feed.prefix + b.Key(of.Resource, of.Namespace, of.Name), nil
	}
	return b.feed.prefix + b.Key(of.Resource, of.Namespace, ""),
		[]clientv3.OpOption{clientv3.WithPrefix()}
}

// At most revisionsAtOnce revisions are read at a time, and about bytesAtOnce bytes of them.
const (
	revisionsAtOnce = 100
	bytesAtOnce     = 4 << 20
)

// pastReader is a watcher that reads past changes at once. Package embed has it.
type pastReader interface {
	Past(ctx context.Context, first, last, bytes int64, key string, opts ...clientv3.OpOption) (
		events []*clientv3.Event, from, compacted int64, err error)
}

// between calls report for each change from one revision to another, in order. If these are too
// large, it leaves out the first ones and returns where it has begun. If the first one has been
// compacted, it returns the revision of the compaction.
func (b *Backend) between(
	ctx context.Context, first, last int64, key string, options []clientv3.OpOption,
	report func(*clientv3.Event),
) (from, compacted int64, err error) {
	reader, ok := b.client.Watcher.(pastReader)
	if !ok {
		compacted, err = b.watchBetween(ctx, first, last, key, options, report)
		return first, compacted, err
	}
	events, from, compacted, err := reader.Past(ctx, first, last, bytesAtOnce, key, options...)
	if err != nil {
		return 0, 0, fmt.Errorf("read the revisions from %d to %d: %w", first, last, err)
	}
	for _, e := range events {
		report(e)
	}
	return from, compacted, nil
}

// watchBetween is between for an etcd elsewhere. Each watch reads all changes up to now.
func (b *Backend) watchBetween(
	ctx context.Context, first, last int64, key string, options []clientv3.OpOption,
	report func(*clientv3.Event),
) (compacted int64, err error) {
	ctx, cancel := context.WithCancel(withoutSharing(ctx))
	defer cancel()
	watch := b.client.Watch(ctx, key, append(slices.Clone(options), clientv3.WithRev(first))...)
	poll := time.NewTimer(0)
	defer poll.Stop()
	for pause := firstHurry; ; {
		select {
		case <-poll.C:
			if err := b.client.RequestProgress(ctx); err != nil {
				return 0, fmt.Errorf("watch %s: %w", key, err)
			}
			pause = min(2*pause, lastHurry)
			poll.Reset(pause)
		case r, ok := <-watch:
			switch {
			case ok && r.CompactRevision > 0:
				return r.CompactRevision, nil
			case !ok || r.Err() != nil:
				return 0, fmt.Errorf("watch %s: %w", key, cmp.Or(r.Err(), ctx.Err(), errEnded))
			case r.IsProgressNotify() && r.Header.Revision >= last:
				return 0, nil
			}
			for _, e := range r.Events {
				if e.Kv.ModRevision > last {
					return 0, nil
				}
				report(e)
			}
		}
	}
}

var errEnded = errors.New("etcd ended the watch")

// withoutSharing makes that no other watch shares the requests for progress.
func withoutSharing(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs("history", "versions"))
}

// selected returns a change if it is selected, and nil otherwise.
func (b *Backend) selected(ctx context.Context, of VersionsOf, e *clientv3.Event) *change {
	if !b.has(of, string(e.Kv.Key)) {
		return nil
	}
	c := &change{Event: e}
	c.resource, c.namespace, c.name, _ = b.identify(string(e.Kv.Key))
	var may bool
	if c.since, may = of.allowed(c.resource); !may || e.Kv.ModRevision < c.since {
		return nil
	}
	if of.Labels != nil && !of.Labels.Empty() {
		kv := e.Kv
		if e.Type == mvccpb.DELETE {
			kv = b.before(ctx, c)
		}
		var object metav1.PartialObjectMetadata
		if kv == nil {
			return nil
		}
		if _, err := b.readMetadata(ctx, kv, &object); err != nil ||
			!of.Labels.Matches(labels.Set(object.Labels)) {
			return nil
		}
	}
	return c
}

// before returns what was stored before a change, or nil if that is no longer kept or may not be
// shown.
func (b *Backend) before(ctx context.Context, c *change) *mvccpb.KeyValue {
	if c.PrevKv != nil || c.IsCreate() {
		return c.PrevKv
	}
	found, err := b.client.KV.Get(ctx, string(c.Kv.Key), clientv3.WithRev(c.Kv.ModRevision-1))
	if err != nil || len(found.Kvs) == 0 || found.Kvs[0].ModRevision < c.since {
		return nil
	}
	c.PrevKv = found.Kvs[0]
	return c.PrevKv
}

// has reports whether a key is that of a selected object. The key of a resource that does not exist
// may be that of an object of another one.
func (b *Backend) has(of VersionsOf, key string) bool {
	resource, namespace, name, ok := b.identify(key)
	return ok && (of.Resource.Resource == "" || resource == of.Resource) &&
		(of.Namespace == "" || namespace == of.Namespace) && (of.Name == "" || name == of.Name)
}

// identify returns which object a key belongs to. The keys of custom resources that have no store
// say it themselves.
func (b *Backend) identify(key string) (resource schema.GroupResource, namespace, name string,
	ok bool) {
	rest, below := "", false
	b.mu.Lock()
	for s := range b.caches {
		if rest, below = strings.CutPrefix(key, s.reader.prefix); below {
			resource = s.config.GroupResource
			break
		}
	}
	b.mu.Unlock()
	if !below {
		parts := strings.SplitN(strings.TrimPrefix(key, b.feed.prefix), "/", 3)
		if len(parts) < 3 || !strings.Contains(parts[0], ".") {
			return resource, "", "", false // no object of the API
		}
		resource, rest = schema.GroupResource{Group: parts[0], Resource: parts[1]}, parts[2]
	}
	if namespace, name, ok = strings.Cut(rest, "/"); !ok {
		namespace, name = "", rest
	}
	return resource, namespace, name, true
}

// version describes a change.
func (b *Backend) version(ctx context.Context, c *change) history.Version {
	v := history.Version{
		Revision: c.Kv.ModRevision, Event: history.Updated,
		Resource: c.resource.String(), Namespace: c.namespace, Name: c.name,
	}
	v.Writer, v.Time = b.writers.Of(v.Revision, writers.Sum(c.Kv.Key, c.Kv.Value))
	before := b.decode(ctx, c.resource, b.before(ctx, c))
	switch {
	case c.Type == mvccpb.DELETE:
		v.Event = history.Deleted
		if c.resource == secrets {
			hideSecret(before, nil)
		}
		v.Object = shown(before)
		return v
	case c.IsCreate():
		v.Event = history.Created
	}
	after := b.decode(ctx, c.resource, c.Kv)
	if before != nil && after != nil {
		v.Changes = differences(before, after, c.resource == secrets)
	}
	if c.resource == secrets {
		hideSecret(after, before)
	}
	v.Object = shown(after)
	return v
}

func shown(object map[string]any) json.RawMessage {
	if object == nil {
		return nil
	}
	data, err := json.Marshal(object)
	if err != nil {
		return nil
	}
	return data
}

// decode returns a stored object as the API shows it, but for its managed fields. It returns nil if
// there is none or if it cannot be decoded.
func (b *Backend) decode(
	ctx context.Context, resource schema.GroupResource, kv *mvccpb.KeyValue,
) map[string]any {
	if kv == nil || len(kv.Value) == 0 {
		return nil
	}
	var meta metav1.PartialObjectMetadata
	data, err := b.readMetadata(ctx, kv, &meta)
	if err != nil {
		return nil
	}
	if stored.IsProtobuf(data) {
		if data = b.inJSON(data, string(kv.Key)); data == nil {
			return nil
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // keeps large integers as they are
	var object map[string]any
	if decoder.Decode(&object) != nil {
		return nil
	}
	object["apiVersion"], object["kind"] = meta.APIVersion, meta.Kind
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
		metadata["resourceVersion"] = meta.ResourceVersion
	}
	return object
}

// inJSON returns a stored object, which is in protobuf, in JSON.
func (b *Backend) inJSON(data []byte, key string) []byte {
	object, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		r := b.readerOf(key)
		if r == nil {
			return nil
		}
		if object, _, err = r.Decode(data, nil, r.newFunc()); err != nil {
			return nil
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil
	}
	return text
}
