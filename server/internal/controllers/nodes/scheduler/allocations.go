package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/kinproc/kinproc/server/internal/requests/epoch"
)

// The allocator of devices tries all combinations, and claims can be made for which that takes for
// ever. So other pods are scheduled meanwhile, the allocator is called without a lock, and there is
// a limit for each attempt.
const (
	// quickLimit is enough for nearly all pods.
	quickLimit = 100 * time.Millisecond
	// slowPause is the time between two attempts to allocate devices that both took too long. It is
	// the longest one of kube-scheduler.
	slowPause = 10 * time.Second
)

var (
	errNoDevices = errors.New("cannot allocate all claims")
	errTimedOut  = errors.New("timed out trying to allocate devices")
)

// lane is where one pod after the other gets devices. There is one lane for all pods and another
// one for those that the first one could not serve within its limit, so that nobody waits for
// these.
type lane struct {
	limit  time.Duration
	turn   chan struct{} // full while a pod has its turn
	search *search       // for the pod that has its turn, guarded by the mu of the run
}

// newLanes returns the lane for all pods, and the one where the limit of an attempt is the longest.
func newLanes(longest time.Duration) []*lane {
	return []*lane{
		{limit: quickLimit, turn: make(chan struct{}, 1)},
		{limit: longest, turn: make(chan struct{}, 1)},
	}
}

// search is the search for devices for a pod. The goroutine that has the turn works on it, and
// changes claims and stop under the mu of the run.
type search struct {
	allocator structured.Allocator
	before    sets.Set[types.UID] // the claims that were allocated when the search began
	claims    []*resourcev1.ResourceClaim
	answers   map[string]answer // by node
	found     bool              // there are devices on a node
	timedOut  bool              // there was no time for a node
	stop      func()            // ends the present call of the allocator
}

// answer is what the allocator says about a node.
type answer struct {
	results []resourcev1.AllocationResult // for each of the claims, that for extended resources last
	err     error
	asked   question
	// broken is set if err does not say that the node does not fit, and the attempt fails.
	broken bool
}

// about makes the search one for some claims.
func (s *search) about(claims []*resourcev1.ResourceClaim) {
	if !slices.EqualFunc(s.claims, claims, func(a, b *resourcev1.ResourceClaim) bool {
		return a.UID == b.UID
	}) {
		*s = search{}
	}
	s.claims = claims
}

func (s *search) has(claim types.UID) bool {
	return slices.ContainsFunc(s.claims, func(c *resourcev1.ResourceClaim) bool {
		return c.UID == claim
	})
}

// allocate schedules a pod that needs devices.
func (r *run) allocate(ctx context.Context, p *queued) {
	r.mu.Lock()
	lanes, info := r.lanes, p.pod
	if p.slow {
		lanes = lanes[1:]
	}
	r.mu.Unlock()
	for i, l := range lanes {
		decided, err := r.allocateIn(ctx, l, p, i == len(lanes)-1)
		if err != nil && ctx.Err() == nil {
			r.failed(ctx, p, info, err)
		}
		if decided || err != nil {
			return
		}
	}
}

// allocateIn schedules a pod that needs devices once it is its turn in a lane. Unless the lane is
// the last one, nothing may be decided within its limit.
func (r *run) allocateIn(
	ctx context.Context, l *lane, p *queued, last bool,
) (decided bool, err error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return true, nil
	}
	ctx = epoch.Begin(ctx)
	limited, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	r.mu.Lock()
	p.seen = 0 // the search sees what has happened until now
	r.mu.Unlock()
	s := &search{}
	for ctx.Err() == nil {
		questions, err := r.decide(ctx, p, s)
		if err != nil || len(questions) == 0 {
			return true, err
		}
		if err := r.ask(limited, l, p, s, questions); err != nil {
			return true, err
		}
		if s.timedOut && !s.found && !last {
			return false, nil
		}
	}
	return true, nil
}

// ask asks the allocator about nodes, until ctx ends, or the pod or one of its claims is deleted.
func (r *run) ask(
	ctx context.Context, l *lane, p *queued, s *search, questions []question,
) error {
	if s.allocator == nil {
		if err := r.begin(ctx, s); err != nil {
			return err
		}
	}
	deadline, _ := ctx.Deadline() // that of the lane
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r.mu.Lock()
	gone := !r.queue.has(p) || r.devices.goes(p.Namespace, s.claims)
	l.search, p.stop, s.stop = s, stop, stop
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		l.search, p.stop, s.stop = nil, nil, nil
	}()
	for i, asked := range questions {
		n := asked.node
		if _, known := s.answers[n.Name]; known {
			continue
		}
		if gone || errors.Is(ctx.Err(), context.Canceled) {
			return nil
		}
		// A node that takes long leaves time for the others.
		share := time.Until(deadline) / time.Duration(min(2, len(questions)-i))
		found := s.ask(ctx, asked, share)
		found.asked = asked
		s.answers[n.Name] = found
	}
	return nil
}

func (s *search) ask(ctx context.Context, asked question, limit time.Duration) answer {
	n, claims := asked.node, s.claims
	if asked.extended != nil {
		claims = append(slices.Clone(claims), asked.extended)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := ctx.Err()
	var results []resourcev1.AllocationResult
	if err == nil {
		results, err = s.allocator.Allocate(ctx, n, claims)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		s.timedOut = true
		return answer{err: broken(fmt.Errorf("node %s: %w", n.Name, errTimedOut)), broken: true}
	case errors.Is(err, structured.ErrFailedAllocationOnNode), errors.Is(err, context.Canceled):
		return answer{err: err}
	case err != nil: // a claim or a class is faulty
		return answer{err: broken(err), broken: true}
	case len(results) != len(claims):
		return answer{err: errNoDevices}
	}
	s.found = true
	return answer{results: results}
}

// broken returns an error in the words in which kube-scheduler says that an attempt has failed.
func broken(err error) error {
	return fmt.Errorf("running %q filter plugin: %w", "DynamicResources", err)
}

// goes reports whether one of some claims is gone or is being deleted.
func (d *devices) goes(namespace string, claims []*resourcev1.ResourceClaim) bool {
	return slices.ContainsFunc(claims, func(c *resourcev1.ResourceClaim) bool {
		now, err := d.claims.ResourceClaims(namespace).Get(c.Name)
		return err != nil || now.UID != c.UID || now.DeletionTimestamp != nil
	})
}

// begin gives a search its allocator, which knows what is allocated by now.
func (r *run) begin(ctx context.Context, s *search) error {
	r.mu.Lock()
	allocations, err := r.devices.allocations()
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("list allocated devices: %w", err)
	}
	if s.allocator, err = r.devices.allocator(ctx, allocations); err != nil {
		return fmt.Errorf("prepare the allocation of devices: %w", err)
	}
	s.before, s.answers = sets.KeySet(allocations), map[string]answer{}
	return nil
}

// outdated reports whether devices have been allocated since a search began that belong to the same
// pools as those that it has found, and may be the same.
func (d *devices) outdated(s *search, results []resourcev1.AllocationResult) bool {
	type pool struct{ driver, name string }
	pools := sets.New[pool]()
	for i := range results {
		for _, result := range results[i].Devices.Results {
			pools.Insert(pool{result.Driver, result.Pool})
		}
	}
	allocations, err := d.allocations()
	if err != nil {
		return true
	}
	for uid, allocation := range allocations {
		if !s.before.Has(uid) && slices.ContainsFunc(allocation.Devices.Results,
			func(result resourcev1.DeviceRequestAllocationResult) bool {
				return pools.Has(pool{result.Driver, result.Pool})
			}) {
			return true
		}
	}
	return false
}
