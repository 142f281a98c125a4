package etcdstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kinproc/kinproc/chain/history"
)

// maxHistoryBytes limits the stored objects of a history.
const maxHistoryBytes = 16 << 20

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
	// Allowed, if set, reports whether the objects of a resource may be shown.
	Allowed func(schema.GroupResource) bool
	Limit   int
}

// change is an event with the object before it.
type change struct {
	*clientv3.Event
	resource        schema.GroupResource
	namespace, name string
}

func (c *change) size() int { return len(c.Kv.Value) + len(c.before()) }

func (c *change) before() []byte {
	if c.PrevKv == nil {
		return nil
	}
	return c.PrevKv.Value
}

// Versions returns the newest versions. It reads all revisions that etcd keeps, as a watch does that
// begins there, one call after the other.
func (b *Backend) Versions(ctx context.Context, of VersionsOf) (*history.History, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	found := &history.History{Versions: []history.Version{}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var kept []*change
	size := 0
	compacted, err := b.changes(ctx, of, func(c *change) error {
		kept, size = append(kept, c), size+c.size()
		for len(kept) > of.Limit || size > maxHistoryBytes && len(kept) > 1 {
			size -= kept[0].size()
			kept, found.More = kept[1:], true
		}
		return nil
	}, func(revision int64) error {
		found.Revision = revision
		cancel()
		return nil
	})
	if err != nil {
		return nil, err
	}
	found.Compacted = compacted
	ctx = context.WithoutCancel(ctx)
	if len(kept) == 0 && of.Name != "" {
		// The object may not have changed since the oldest revision.
		now, err := b.VersionAt(ctx, of, 0)
		if err != nil || now == nil {
			return found, err
		}
		found.Versions = append(found.Versions, *now)
	}
	for _, c := range kept {
		found.Versions = append(found.Versions, b.version(ctx, c))
	}
	return found, nil
}

// FollowVersions calls report for the versions that etcd keeps and then for each new one, until ctx
// ends.
func (b *Backend) FollowVersions(
	ctx context.Context, of VersionsOf, report func(history.Version) error,
) error {
	var kept []*change
	current := false
	_, err := b.changes(ctx, of, func(c *change) error {
		if current {
			return report(b.version(ctx, c))
		}
		if kept = append(kept, c); len(kept) > of.Limit {
			kept = kept[1:]
		}
		return nil
	}, func(int64) error {
		current = true
		for _, c := range kept {
			if err := report(b.version(ctx, c)); err != nil {
				return err
			}
		}
		kept = nil
		return nil
	})
	return err
}

// VersionAt returns an object as it was at a revision, or as it is if the revision is 0. It returns
// nil if there was none.
func (b *Backend) VersionAt(
	ctx context.Context, of VersionsOf, revision int64,
) (*history.Version, error) {
	key, _ := b.keys(of)
	if !b.has(of, key) {
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
	kv := found.Kvs[0]
	event := &clientv3.Event{Type: mvccpb.PUT, Kv: kv}
	v := b.version(ctx, &change{event, of.Resource, of.Namespace, of.Name})
	return &v, nil
}

// current returns the current revision of etcd.
func (b *Backend) current(ctx context.Context) (int64, error) {
	now, err := b.client.KV.Get(ctx, b.feed.prefix, clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("read the current revision: %w", err)
	}
	return now.Header.Revision, nil
}

// changes calls report for each change from the oldest revision on, and reached when it has come to
// the present. It returns when ctx ends or when one of them returns an error. It reports whether old
// revisions have been compacted.
func (b *Backend) changes(
	ctx context.Context, of VersionsOf, report func(*change) error, reached func(int64) error,
) (compacted bool, err error) {
	// No other watch shares the requests for progress.
	ctx = metadata.NewOutgoingContext(ctx, metadata.Pairs("history", "versions"))
	now, err := b.current(ctx)
	if err != nil {
		return false, err
	}
	key, options := b.keys(of)
	for from := int64(1); ; {
		oldest, err := b.changesFrom(ctx, key, options, from, now,
			func(e *clientv3.Event) error {
				if c := b.selected(ctx, of, e); c != nil {
					return report(c)
				}
				return nil
			}, reached)
		if err != nil || oldest == 0 {
			return compacted, err
		}
		from, compacted = oldest+1, true
	}
}

// keys returns the range of the keys that may be selected.
func (b *Backend) keys(of VersionsOf) (string, []clientv3.OpOption) {
	options := []clientv3.OpOption{clientv3.WithPrevKV()}
	switch {
	case of.Resource.Resource == "":
		return b.feed.prefix, append(options, clientv3.WithPrefix())
	case of.Name != "":
		return b.feed.prefix + b.Key(of.Resource, of.Namespace, of.Name), options
	}
	return b.feed.prefix + b.Key(of.Resource, of.Namespace, ""), append(options, clientv3.WithPrefix())
}

// changesFrom is like changes, with the options of a watch. If the first revision has been
// compacted, it returns the oldest one that has not.
func (b *Backend) changesFrom(
	ctx context.Context, key string, options []clientv3.OpOption, from, now int64,
	report func(*clientv3.Event) error, reached func(int64) error,
) (oldest int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options = append(slices.Clone(options), clientv3.WithRev(from))
	watch, current := b.client.Watcher.Watch(ctx, key, options...), false
	poll := time.NewTimer(0)
	defer poll.Stop()
	if from > now { // etcd tells no progress to a watch that begins in the future
		current = true
		poll.Stop()
		if err := reached(now); err != nil {
			return 0, err
		}
	}
	for pause := firstHurry; ; {
		select {
		case <-poll.C:
			if err := b.client.Watcher.RequestProgress(ctx); err != nil && ctx.Err() == nil {
				return 0, fmt.Errorf("watch %s: %w", key, err)
			}
			pause = min(2*pause, lastHurry)
			poll.Reset(pause)
		case r, ok := <-watch:
			switch {
			case ctx.Err() != nil:
				return 0, nil
			case ok && r.CompactRevision > 0:
				return r.CompactRevision, nil
			case !ok || r.Err() != nil:
				return 0, fmt.Errorf("watch %s: %w", key, cmp.Or(r.Err(), errEnded))
			}
			for _, e := range r.Events {
				if err := report(e); err != nil {
					return 0, err
				}
			}
			if r.IsProgressNotify() && !current && r.Header.Revision >= now {
				current = true
				poll.Stop()
				if err := reached(r.Header.Revision); err != nil {
					return 0, err
				}
			}
		}
	}
}

var errEnded = errors.New("etcd ended the watch")

// selected returns a change if it is selected, and nil otherwise.
func (b *Backend) selected(ctx context.Context, of VersionsOf, e *clientv3.Event) *change {
	if !b.has(of, string(e.Kv.Key)) {
		return nil
	}
	c := &change{Event: e}
	c.resource, c.namespace, c.name, _ = b.identify(string(e.Kv.Key))
	if of.Allowed != nil && !of.Allowed(c.resource) {
		return nil
	}
	if of.Labels != nil && !of.Labels.Empty() {
		kv := e.Kv
		if e.Type == mvccpb.DELETE {
			kv = e.PrevKv
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
	v.Writer, v.Time = b.writers.Of(v.Revision)
	before := b.decode(ctx, c.resource, c.PrevKv)
	switch {
	case c.Type == mvccpb.DELETE:
		v.Event = history.Deleted
		if c.resource == secrets {
			hideSecret(before)
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
		hideSecret(after)
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
	if bytes.HasPrefix(data, []byte(protobufMagic)) {
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
