package etcdstore

import (
	"context"
	"slices"
)

// lookout is one call of [Backend.Changes].
type lookout struct {
	keys    map[string]bool
	changed chan struct{}
}

func (l *lookout) wake() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Changes returns a channel that has a value when one of some objects may have changed since the
// last receive. The keys are relative to the prefix of the backend. The caller calls stop. Changes
// shares the etcd watch of the informers, and costs nothing while nothing changes.
func (b *Backend) Changes(
	ctx context.Context, keys ...string,
) (changed <-chan struct{}, stop func()) {
	l := &lookout{keys: map[string]bool{}, changed: make(chan struct{}, 1)}
	for _, key := range keys {
		l.keys[b.feed.prefix+key] = true
	}
	f := b.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookouts = append(f.lookouts, l)
	f.start(ctx)
	return l.changed, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.lookouts = slices.DeleteFunc(f.lookouts, func(other *lookout) bool { return other == l })
	}
}
