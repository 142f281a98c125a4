package records

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// longestHistory is how many changes of a resource are kept for watches and for lists of the past,
// and largestHistory how many bytes of earlier objects. A client that is further behind lists
// again.
const (
	longestHistory = 10_000
	largestHistory = 64 << 20
)

// record is an encoded object. Version is its resource version.
type record struct {
	key     string
	data    []byte
	version uint64
}

// change is a change of the record with the given key. Before has no data if the object was
// created, and now has none if it was deleted.
type change struct {
	key         string
	before, now record
	version     uint64
}

// history is the records of a resource and how they came about.
type history struct {
	// writing is held during a write, so that reads need not wait for the persistence.
	writing     sync.Mutex
	persistence Persistence

	mu      sync.RWMutex
	current map[string]record
	changes []change      // with consecutive versions, the last of which is version
	bytes   int           // of the earlier objects in changes
	version uint64        // of the last change
	changed chan struct{} // closed by the next change
}

// loadHistory returns the records with a prefix.
func loadHistory(
	ctx context.Context, p Persistence, prefix string, check func(value []byte) error,
) (*history, error) {
	h := &history{persistence: p, current: map[string]record{}, changed: make(chan struct{})}
	// Resource versions must increase across restarts, and there are fewer than a million writes
	// per second.
	h.version = uint64(time.Now().UnixMicro())
	err := p.Load(ctx, prefix, func(key string, value []byte) error {
		if err := check(value); err != nil {
			return fmt.Errorf("the value of %s: %w", key, err)
		}
		h.current[key] = record{key, slices.Clone(value), h.version}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load the objects below %s: %w", prefix, err)
	}
	return h, nil
}

// write stores data under key, or deletes the key if data is nil, if the record still has the given
// version; 0 stands for no record. It returns the new record, or the present one and false.
func (h *history) write(
	ctx context.Context, key string, version uint64, data []byte,
) (record, bool, error) {
	h.writing.Lock()
	defer h.writing.Unlock()
	h.mu.RLock()
	before := h.current[key]
	h.mu.RUnlock()
	if before.version != version {
		return before, false, nil
	}
	var err error
	if data == nil {
		err = h.persistence.Delete(ctx, key)
	} else {
		err = h.persistence.Put(ctx, key, data)
	}
	if err != nil {
		return before, false, fmt.Errorf("store %s: %w", key, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version++
	now := record{key, data, h.version}
	h.changes = append(h.changes, change{key, before, now, h.version})
	h.bytes += len(before.data)
	h.forgetLocked()
	if data == nil {
		delete(h.current, key)
	} else {
		h.current[key] = now
	}
	close(h.changed)
	h.changed = make(chan struct{})
	return now, true, nil
}

// forgetLocked drops the oldest changes if there are too many. It leaves some room, so that it need
// not copy the others after each change. The caller holds mu.
func (h *history) forgetLocked() {
	if len(h.changes) <= longestHistory*5/4 && h.bytes <= largestHistory*5/4 {
		return
	}
	oldest := 0
	for len(h.changes)-oldest > longestHistory || h.bytes > largestHistory {
		h.bytes -= len(h.changes[oldest].before.data)
		oldest++
	}
	h.changes = slices.Clone(h.changes[oldest:])
}

// get returns the record of a key, which has no data if there is none, and the current version.
func (h *history) get(key string) (record, uint64) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.current[key], h.version
}

// selection is a range of keys.
type selection struct {
	key   string
	below bool // all keys that begin with key, which ends with a slash
}

func (s selection) has(key string) bool {
	if s.below {
		return strings.HasPrefix(key, s.key)
	}
	return key == s.key
}

// at returns the records that a selection had at a version, sorted by key, and the version. The
// version 0 stands for the current one.
func (h *history) at(s selection, version uint64) ([]record, uint64, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if version == 0 {
		version = h.version
	}
	changes, err := h.sinceLocked(version)
	if err != nil {
		return nil, 0, err
	}
	then := map[string]record{}
	for _, c := range slices.Backward(changes) {
		if s.has(c.key) {
			then[c.key] = c.before
		}
	}
	if !s.below {
		if _, undone := then[s.key]; !undone {
			if r, ok := h.current[s.key]; ok {
				then[s.key] = r
			}
		}
	} else {
		for key, r := range h.current {
			if _, undone := then[key]; !undone && s.has(key) {
				then[key] = r
			}
		}
	}
	maps.DeleteFunc(then, func(_ string, r record) bool { return r.data == nil })
	found := slices.SortedFunc(maps.Values(then), func(a, b record) int {
		return strings.Compare(a.key, b.key)
	})
	return found, version, nil
}

// since returns the changes after a version, the current version, and a channel that is closed when
// there is another change.
func (h *history) since(version uint64) ([]change, uint64, <-chan struct{}, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	changes, err := h.sinceLocked(version)
	return changes, h.version, h.changed, err
}

// errExpired says that changes are no longer in the history.
var errExpired = apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")

// sinceLocked returns the changes after a version. The caller holds mu.
func (h *history) sinceLocked(version uint64) ([]change, error) {
	if version >= h.version {
		return nil, nil
	}
	behind := h.version - version
	if behind > uint64(len(h.changes)) {
		return nil, errExpired
	}
	return h.changes[uint64(len(h.changes))-behind:], nil
}
