package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/etcdconn"
)

// Reset makes the objects of the running control plane those of a snapshot, which may come from
// another one. It writes the difference in one step, so that a process that is killed meanwhile
// leaves the state of before or of after. Objects that do not differ keep their resource versions;
// the others get a new, higher one. Watches get the difference as ordinary events, or 410 Gone if
// they cannot. Keys, certificates and what describes this control plane itself stay.
//
// Requests that begin during the reset wait for its end. Whatever begins after Reset returns sees
// nothing of before. The control loops of this control plane forget what they were about to do.
//
// If ctx ends early, Reset returns an error, and nothing has changed unless the error says so. If the
// server does not show a definition of the snapshot within ten seconds, Reset stops waiting for it,
// and the error names it.
func (s *Server) Reset(ctx context.Context, to *Snapshot) error {
	return s.up("Reset").reset(ctx, to)
}

var (
	errResetExternal = errors.New("reset: only a control plane with the embedded etcd can be reset")
	errResetReadOnly = errors.New("reset: the control plane is read-only")
)

func (p *plane) reset(ctx context.Context, to *Snapshot) error {
	switch {
	case p.etcd.Embedded == nil:
		return errResetExternal
	case p.options.ReadOnly:
		return errResetReadOnly
	case p.encryption != nil:
		return fmt.Errorf("reset: %w", etcdconn.ErrEncrypted)
	}
	target, err := to.data.State() // the first time, this takes long
	if err != nil {
		return err
	}
	p.resetting.Lock()
	defer p.resetting.Unlock()
	r := &reset{plane: p, target: target}
	if err := r.run(ctx); err != nil {
		return err
	}
	if err := p.waitAvailable(ctx, r.objects()); err != nil {
		return fmt.Errorf("reset: the objects are those of the snapshot, but extension API servers "+
			"may not be reachable yet: %w", err)
	}
	return nil
}

// run holds the requests, writes the difference, and waits for the caches.
func (r *reset) run(ctx context.Context) error {
	p := r.plane
	caches := p.caches()
	if err := caches.waitSynced(ctx); err != nil {
		return fmt.Errorf("reset: wait for the caches: %w", err)
	}
	gate := p.requests.Gate
	if err := gate.Close(ctx); err != nil {
		return fmt.Errorf("reset: wait for the requests that have begun: %w", err)
	}
	defer gate.Open()
	if err := caches.noteOpened(); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	if err := p.storage.Switch(ctx, func() (int64, []string, error) {
		return r.write(ctx)
	}); err != nil {
		if r.revision > 0 {
			gate.Epochs.Next()
			return fmt.Errorf("reset: the objects are those of the snapshot, but caches may be behind: %w",
				err)
		}
		return fmt.Errorf("reset: %w", err)
	}
	if len(r.changes) == 0 {
		return nil
	}
	gate.Epochs.Next()
	bounded, cancel := context.WithTimeoutCause(ctx, catchUpPatience, errBehind)
	defer cancel()
	if err := caches.catchUp(bounded, r); err != nil {
		return fmt.Errorf("reset: the objects are those of the snapshot, but caches may be behind: %w",
			err)
	}
	return nil
}

// catchUpPatience is how long requests are held until the caches know the new objects. Some never
// do: discovery does not show every definition that can be stored.
const catchUpPatience = 10 * time.Second

var errBehind = fmt.Errorf("not done within %s", catchUpPatience)

// reset is a reset in progress.
type reset struct {
	plane  *plane
	target *embed.State

	revision int64
	changes  []change
}

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
	current, err := r.plane.etcd.Client.Get(ctx, "\x00", clientv3.WithFromKey())
	if err != nil {
		return nil, 0, fmt.Errorf("read the current state: %w", err)
	}
	prefix := r.plane.storage.Prefix() + "/"
	seen := make(map[string][]byte, len(current.Kvs))
	var puts []change
	for _, kv := range current.Kvs {
		key := string(kv.Key)
		seen[key] = kv.Value
		object, ok := strings.CutPrefix(key, prefix)
		if !ok || stays(object) {
			continue
		}
		wanted, exists := r.target.Entries[key]
		if !exists {
			if !r.ensured(object) {
				changes = append(changes, change{key: key, before: kv.Value})
			}
			continue
		}
		after := r.plane.adapted(object, wanted.Value)
		if !isAPIService(object) && !bytes.Equal(kv.Value, after) {
			puts = append(puts, change{key: key, before: kv.Value, after: after, lease: wanted.Lease})
		}
	}
	for key, wanted := range r.target.Entries {
		object, ok := strings.CutPrefix(key, prefix)
		if _, exists := seen[key]; !ok || exists || isOwn(object) || isAPIService(object) {
			continue
		}
		puts = append(puts, change{key: key, after: r.plane.adapted(object, wanted.Value),
			lease: wanted.Lease})
	}
	puts = append(puts, r.apiServices(seen, slices.Concat(changes, puts))...)
	sort.Slice(puts, func(i, j int) bool { return puts[i].key < puts[j].key })
	return append(changes, puts...), current.Header.Revision, nil
}

// commit writes changes in one transaction.
func (r *reset) commit(ctx context.Context, changes []change, keys []string) (int64, error) {
	key, value := r.plane.storage.Mark(uuid.NewString(), keys)
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
	return r.plane.etcd.Embedded.Change(ctx, all)
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
	granted, err := r.plane.etcd.Client.Grant(ctx, seconds)
	if err != nil {
		return 0, fmt.Errorf("grant a lease: %w", err)
	}
	leases[id] = int64(granted.ID)
	return leases[id], nil
}
