// Package reset takes snapshots of a control plane, puts it back to one while it runs, and serves
// both over HTTP.
package reset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/bootstrap"
	"github.com/kinproc/kinproc/server/internal/etcdconn"
	"github.com/kinproc/kinproc/server/internal/requests"
)

// Follower is whoever makes something of stored objects that a request can see.
type Follower interface {
	// CatchUp waits until the state before the changes can no longer be seen. Meanwhile, the only
	// requests are reads by the server itself.
	CatchUp(ctx context.Context, changes chain.Changes) error
}

// What a request can see of the state, other than by reading etcd, comes from caches. A reset waits
// for the ones that hold objects of a kind that it changes:
//
//   - The watch caches of all resources, and what the garbage collector knows of owners and
//     dependents: chain/internal/etcdstore, Backend.Switch.
//   - The stores of the shared informers: namespaces, services, quotas, and whatever else admission
//     plugins, the resolver of services and the control loops read; roles and bindings, once
//     somebody has needed them: informers.Set.
//   - CRDs, and what the extensions server makes of them; the proxies and
//     the discovery of APIServices: chain.Chain.
//   - What admission plugins make of objects: webhooks and policies are kept compiled, and the
//     quota plugin remembers quotas that its informer does not know yet: admission.Deferred.
//
// All but the first are a [Follower]. These need no wait. LimitRanger and Priority ask etcd whether
// their lists have changed. The allocator of node ports compares its bitmap with etcd's when it
// writes, and cluster IPs are in etcd only. Tokens are checked against etcd. The live lookups of
// the namespace lifecycle plugin only make it look more often. The configuration of priority and
// fairness and the OpenAPI v2 document follow a moment later, as after any change. The conditions
// of APIServices are waited for when the requests pass again.

// Config says what is reset.
type Config struct {
	Etcd    *etcdconn.Conn
	Storage *chain.Storage
	// Encrypted is true if stored objects are.
	Encrypted bool
	ReadOnly  bool

	Gate      *requests.Gate
	Informers interface {
		WaitSynced(ctx context.Context) error
	}
	// Followers catch up in this order.
	Followers []Follower
	// Available waits for what needs writes to catch up, when the requests pass again.
	Available func(ctx context.Context, changes chain.Changes) error
	// Parts are what every control plane has.
	Parts *bootstrap.Bootstrap
}

// Control takes snapshots and resets.
type Control struct {
	config    Config
	resetting sync.Mutex
}

// New returns a control.
func New(c Config) *Control { return &Control{config: c} }

// Snapshot returns the state.
func (c *Control) Snapshot(ctx context.Context) (*embed.Snapshot, error) {
	if c.config.Encrypted {
		return nil, fmt.Errorf("snapshot: %w", etcdconn.ErrEncrypted)
	}
	if c.config.Etcd.Embedded != nil {
		return c.config.Etcd.Embedded.TakeSnapshot(ctx)
	}
	stream, err := c.config.Etcd.Client.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("take snapshot: %w", err)
	}
	defer stream.Close()
	return embed.ReadSnapshot(stream)
}

var (
	errExternal = errors.New("reset: only a control plane with the embedded etcd can be reset")
	errReadOnly = errors.New("reset: the control plane is read-only")
)

// Reset makes the objects those of a snapshot.
func (c *Control) Reset(ctx context.Context, to *embed.Snapshot) error {
	switch {
	case c.config.Etcd.Embedded == nil:
		return errExternal
	case c.config.ReadOnly:
		return errReadOnly
	case c.config.Encrypted:
		return fmt.Errorf("reset: %w", etcdconn.ErrEncrypted)
	}
	target, err := to.State() // the first time, this takes long
	if err != nil {
		return err
	}
	c.resetting.Lock()
	defer c.resetting.Unlock()
	edits, err := c.config.Parts.Adopt()
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	r := &reset{Config: c.config, target: target, edits: edits}
	if err := r.run(ctx); err != nil {
		return err
	}
	if err := c.config.Available(ctx, r.seen()); err != nil {
		return fmt.Errorf("reset: the objects are those of the snapshot, but extension API servers "+
			"may not be reachable yet: %w", err)
	}
	return nil
}

// reset is a reset in progress.
type reset struct {
	Config
	target *embed.State
	edits  bootstrap.Edits

	opened   map[schema.GroupResource]int // before
	revision int64
	changes  []change
}

// run holds the requests, writes the difference, and waits for the caches.
func (r *reset) run(ctx context.Context) error {
	if err := r.Informers.WaitSynced(ctx); err != nil {
		return fmt.Errorf("reset: wait for the caches: %w", err)
	}
	if err := r.Gate.Close(ctx); err != nil {
		return fmt.Errorf("reset: wait for the requests that have begun: %w", err)
	}
	defer r.Gate.Open()
	r.opened = r.Storage.Opened()
	if err := r.Storage.Switch(ctx, func() (int64, []string, error) {
		return r.write(ctx)
	}); err != nil {
		if r.revision > 0 {
			r.Gate.Epochs.Next()
			return behind(err)
		}
		return fmt.Errorf("reset: %w", err)
	}
	if len(r.changes) == 0 {
		return nil
	}
	r.Gate.Epochs.Next()
	bounded, cancel := context.WithTimeoutCause(ctx, catchUpPatience, errBehind)
	defer cancel()
	changes := r.seen()
	for _, f := range r.Followers {
		if err := f.CatchUp(bounded, changes); err != nil {
			return behind(err)
		}
	}
	return nil
}

func behind(err error) error {
	return fmt.Errorf("reset: the objects are those of the snapshot, but caches may be behind: %w",
		err)
}

// catchUpPatience is how long requests are held until the caches know the new objects. Some never
// do: discovery does not show every CRD that can be stored.
const catchUpPatience = 10 * time.Second

var errBehind = fmt.Errorf("not done within %s", catchUpPatience)

// change is the change of one object.
type change struct {
	key string
	// before and after are the stored objects; nil if there is none.
	before, after []byte
	lease         int64 // of the snapshot
	revision      int64 // of this change
}

// attempts limits how often the difference is computed. Nothing but the server itself can write
// meanwhile, without a request: expiring leases, and reservations that it repairs.
const attempts = 10

// write writes the difference until there is none.
func (r *reset) write(ctx context.Context) (int64, []string, error) {
	var keys []string
	for range attempts {
		changes, now, err := r.difference(ctx)
		if err != nil {
			return 0, nil, err
		}
		if len(changes) == 0 {
			return r.revision, keys, nil
		}
		for _, c := range changes {
			keys = append(keys, c.key)
		}
		written, err := r.commit(ctx, changes, keys)
		if err != nil {
			return 0, nil, err
		}
		for i := range changes {
			changes[i].revision = written
		}
		r.revision, r.changes = written, append(r.changes, changes...)
		if written == now+1 {
			return written, keys, nil
		}
	}
	return r.revision, keys, nil
}

// difference returns the changes that make the current objects those of the snapshot, deletions
// first, and the current revision.
func (r *reset) difference(ctx context.Context) (changes []change, now int64, err error) {
	current, err := r.Etcd.Client.Get(ctx, "\x00", clientv3.WithFromKey())
	if err != nil {
		return nil, 0, fmt.Errorf("read the current state: %w", err)
	}
	prefix := r.Storage.Prefix() + "/"
	has := func(object string) bool { _, ok := r.target.Entries[prefix+object]; return ok }
	seen := make(map[string][]byte, len(current.Kvs))
	var puts []change
	for _, kv := range current.Kvs {
		key := string(kv.Key)
		seen[key] = kv.Value
		object, ok := strings.CutPrefix(key, prefix)
		if !ok || r.Parts.Own(object) {
			continue
		}
		wanted, exists := r.target.Entries[key]
		if !exists {
			if !r.Parts.Always(object, has) {
				changes = append(changes, change{key: key, before: kv.Value})
			}
			continue
		}
		after := r.edits.Apply(object, wanted.Value)
		if !isAPIService(object) && !bytes.Equal(kv.Value, after) {
			puts = append(puts, change{key: key, before: kv.Value, after: after, lease: wanted.Lease})
		}
	}
	for key, wanted := range r.target.Entries {
		object, ok := strings.CutPrefix(key, prefix)
		if _, exists := seen[key]; !ok || exists || isAPIService(object) {
			continue
		}
		// What describes the other control plane is of no use here, unless it can be taken over.
		if r.Parts.Own(object) && r.edits[object] == nil {
			continue
		}
		puts = append(puts, change{key: key, after: r.edits.Apply(object, wanted.Value),
			lease: wanted.Lease})
	}
	puts = append(puts, r.apiServices(seen, slices.Concat(changes, puts))...)
	sort.Slice(puts, func(i, j int) bool { return puts[i].key < puts[j].key })
	return append(changes, puts...), current.Header.Revision, nil
}

// commit writes changes in one transaction.
func (r *reset) commit(ctx context.Context, changes []change, keys []string) (int64, error) {
	key, value := r.Storage.Mark(uuid.NewString(), keys)
	all := []embed.Change{{Key: key, Value: value}}
	leases := map[int64]int64{}
	for _, c := range changes {
		if c.after == nil {
			all = append(all, embed.Change{Key: c.key, Delete: true})
			continue
		}
		lease, err := r.lease(ctx, leases, c.lease)
		if err != nil {
			return 0, err
		}
		all = append(all, embed.Change{Key: c.key, Value: c.after, Lease: lease})
	}
	return r.Etcd.Embedded.Change(ctx, all)
}

// lease returns a lease that lasts as long as one of the snapshot. That one may have expired here,
// or may never have existed.
func (r *reset) lease(ctx context.Context, leases map[int64]int64, id int64) (int64, error) {
	if id == 0 {
		return 0, nil
	}
	if lease, ok := leases[id]; ok {
		return lease, nil
	}
	seconds := max(r.target.LeaseSeconds[id], 1)
	granted, err := r.Etcd.Client.Grant(ctx, seconds)
	if err != nil {
		return 0, fmt.Errorf("grant a lease: %w", err)
	}
	leases[id] = int64(granted.ID)
	return leases[id], nil
}
