package allocation

import (
	"context"
	"errors"
	"fmt"
	"math/big"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

const (
	rangesPath = "/ranges"
	portsKey   = rangesPath + "/servicenodeports"
)

// portRange is an inclusive range of node ports, written "first-last".
type portRange struct{ first, last int32 }

func (r portRange) String() string { return fmt.Sprintf("%d-%d", r.first, r.last) }

func (r portRange) size() uint64 { return uint64(r.last-r.first) + 1 }

// staticPart is like [block.staticPart], but for ports (KEP-3668): a thirty-second of the range,
// between 16 and 128.
func (r portRange) staticPart() uint64 {
	if r.size() <= 16 {
		return 0
	}
	return min(max(r.size()/32, 16), 128)
}

// bitmap is a decoded RangeAllocation. Bit i of its big-endian number stands for the port first+i.
type bitmap struct {
	portRange
	bits *big.Int
}

// read decodes a stored bitmap. If it was stored before the server's range changed, ports outside
// the current range are dropped.
func (r portRange) read(stored *corev1.RangeAllocation) bitmap {
	b := bitmap{portRange: r, bits: new(big.Int).SetBytes(stored.Data)}
	var was portRange
	if _, err := fmt.Sscanf(stored.Range, "%d-%d", &was.first, &was.last); err == nil && was != r {
		old := b.bits
		b.bits = new(big.Int)
		for i := range old.BitLen() {
			if port := was.first + int32(i); old.Bit(i) == 1 && b.covers(port) {
				b.set(port, true)
			}
		}
	}
	return b
}

func (b bitmap) covers(port int32) bool { return b.first <= port && port <= b.last }

func (b bitmap) has(port int32) bool { return b.bits.Bit(int(port-b.first)) == 1 }

func (b bitmap) set(port int32, taken bool) {
	bit := uint(0)
	if taken {
		bit = 1
	}
	b.bits.SetBit(b.bits, int(port-b.first), bit)
}

// free returns a port that is not taken, or 0 if there is none.
func (b bitmap) free() int32 {
	var found int32
	for _, band := range bands(b.size(), b.staticPart()) {
		band.each(func(n uint64) bool {
			if b.bits.Bit(int(n)) == 0 {
				found = b.first + int32(n)
			}
			return found == 0
		})
		if found != 0 {
			return found
		}
	}
	return 0
}

// choose returns port if it is free, or any free port if it is 0.
func (b bitmap) choose(port int32) (int32, error) {
	if port == 0 {
		if port = b.free(); port == 0 {
			return 0, fmt.Errorf("range is full: every node port from %d to %d is in use", b.first, b.last)
		}
		return port, nil
	}
	if !b.covers(port) {
		return 0, fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s",
			b.portRange)
	}
	if b.has(port) {
		return 0, fmt.Errorf("provided port %w", ErrTaken)
	}
	return port, nil
}

// take is like choose, and takes the port.
func (b bitmap) take(port int32) (int32, error) {
	port, err := b.choose(port)
	if err == nil {
		b.set(port, true)
	}
	return port, err
}

// AllocateNodePorts calls take with a function that reserves a port, or any port if it is 0, and
// returns it. It stores all of them at once, or none if take returns an error or dryRun is true. If
// another writer interferes, it calls take again, which has to start over.
func (a *Allocator) AllocateNodePorts(
	ctx context.Context, dryRun bool, take func(reserve func(port int32) (int32, error)) error,
) error {
	if dryRun {
		var stored corev1.RangeAllocation
		if err := a.store.ranges.Get(ctx, portsKey,
			storage.GetOptions{IgnoreNotFound: true}, &stored); err != nil {
			return fmt.Errorf("get node ports: %w", err)
		}
		b := a.ports.read(&stored)
		return take(func(port int32) (int32, error) {
			if port != 0 && !b.covers(port) { // as in kube-apiserver, a dry run does not check the range
				return port, nil
			}
			return b.take(port)
		})
	}
	return a.store.changePorts(ctx, a.ports, func(b bitmap) (changed bool, err error) {
		err = take(func(port int32) (int32, error) {
			changed = true
			return b.take(port)
		})
		return changed, err
	})
}

// ReleaseNodePorts frees ports.
func (a *Allocator) ReleaseNodePorts(ctx context.Context, ports ...int32) error {
	store := a.store
	return store.changePorts(ctx, a.ports, func(b bitmap) (bool, error) {
		changed := false
		for _, port := range ports {
			if b.covers(port) && b.has(port) {
				b.set(port, false)
				changed = true
			}
		}
		return changed, nil
	})
}

// changePorts updates the bitmap with change, and retries until there is no conflict with another
// writer. Change reports whether it changed anything.
func (s *stores) changePorts(
	ctx context.Context, r portRange, change func(bitmap) (bool, error),
) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var cached runtime.Object
	if s.lastRange != nil {
		cached = s.lastRange.DeepCopy()
	}
	result := &corev1.RangeAllocation{}
	err := s.ranges.GuaranteedUpdate(ctx, portsKey, result, true, nil,
		storage.SimpleUpdate(func(in runtime.Object) (runtime.Object, error) {
			stored := in.(*corev1.RangeAllocation)
			b := r.read(stored)
			changed, err := change(b)
			if err != nil {
				return nil, err
			}
			if !changed {
				return nil, errStop
			}
			stored.Range, stored.Data = r.String(), b.bits.Bytes()
			return stored, nil
		}), cached)
	if errors.Is(err, errStop) {
		return nil
	}
	if err != nil {
		s.lastRange = nil
		return err
	}
	s.lastRange = result
	return nil
}
