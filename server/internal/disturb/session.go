package disturb

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

// An Entry is a request of a run.
type Entry struct {
	Op     Op
	User   bool // the user's, not the controller's
	Caller string
	Failed bool

	precondition bool
}

// A Session is one run of a case. As the audit backend of the control plane, it learns what happens
// there.
type Session struct {
	plan    Disturbance
	limit   int // of the controller's requests
	cluster *cluster

	mu    sync.Mutex
	trace []Entry
	seen  map[Op]int // how often, by Op without Nth
	fired bool
	// requests are those of the controller that show that it is not at rest, total are all.
	requests, total int
	reads           map[Op]int // since the last write
	// endless is the length of the trace when there were too many requests.
	endless int
	// written are the resources of which somebody has changed an object.
	written map[schema.GroupResource]bool
	// last is when something happened that shows that the system is not at rest, and busy counts what
	// goes on. Nothing has happened for a number of turns of attend, which had seen the last event.
	last, noted  time.Time
	busy, silent int

	current *instance
	over    bool          // the controller has ended by itself
	past    string        // the revision that the next instance sees at first
	rested  chan struct{} // closed at the next rest; nil if nobody waits
	locks   map[Op]bool   // of leaders; the value is true if the controller may hold it
	views   map[Op]view
	held    held
}

// view is the revisions before and after a write of the user.
type view struct{ before, after string }

// instance is one life of the controller, between its start and its end.
type instance struct {
	ctx   context.Context
	kill  context.CancelFunc
	ended chan struct{}
	// Session.mu guards dead, whether the instance has sent a request, whether it has looked at the
	// past, and the number of attend's turns since it started or looked.
	dead, requests, looked bool
	turns                  int

	// past is the revision that the instance sees as long as present is open.
	past    string
	only    string // the resource, if the others are seen as they are
	present chan struct{}
}

// NewSession returns the run of a case with a disturbance. The control plane of the run needs the
// session as its audit backend.
func NewSession(plan Disturbance) *Session {
	return &Session{
		plan: plan, seen: map[Op]int{}, views: map[Op]view{}, locks: map[Op]bool{},
		reads:   map[Op]int{},
		written: map[schema.GroupResource]bool{},
	}
}

// ProcessEvents implements audit.Backend.
func (s *Session) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, e := range events {
		ref := e.ObjectRef
		if ref == nil || ref.Resource == "nodes" || beside(ref.APIGroup, ref.Resource) ||
			e.ResponseStatus == nil || e.ResponseStatus.Code >= 300 {
			continue
		}
		if !(Op{Verb: e.Verb, Subresource: ref.Subresource}).writes() {
			continue
		}
		s.mu.Lock()
		object := Op{
			Resource: schema.GroupVersionResource{
				Group: ref.APIGroup, Version: ref.APIVersion, Resource: ref.Resource,
			},
			Namespace: ref.Namespace, Name: canonical(ref.Name),
		}
		if _, lock := s.locks[object]; lock {
			s.mu.Unlock()
			continue
		}
		s.written[schema.GroupResource{Group: ref.APIGroup, Resource: ref.Resource}] = true
		s.last = time.Now()
		clear(s.reads)
		s.mu.Unlock()
	}
	return true
}

// Run implements audit.Backend.
func (s *Session) Run(<-chan struct{}) error { return nil }

// Shutdown implements audit.Backend.
func (s *Session) Shutdown() {}

// String implements audit.Backend.
func (s *Session) String() string { return "disturb" }

// errCrashed is the error of the requests of a controller that no longer exists.
var errCrashed = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// errLost is the error of a request whose answer is lost.
var errLost = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

// oftenRead is how often a read is work. A controller that repeats it more often although nobody
// writes anything polls, and may be at rest nevertheless.
const oftenRead = 3

// enter counts a request that begins. It returns an error if the controller has crashed, and
// whether the request shows that the system is not at rest.
func (s *Session) enter(i *instance, o Op) (active bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.dead {
		return false, errCrashed
	}
	i.requests = true
	s.total++
	if active = o.writes(); active {
		clear(s.reads)
	} else {
		s.reads[o]++
		active = s.reads[o] <= oftenRead
	}
	if active {
		s.requests++
		s.last = time.Now()
	}
	if (s.requests > s.limit || s.total > totalLimit) && s.endless == 0 {
		s.endless = len(s.trace)
		s.crashLocked(i)
		return false, errCrashed
	}
	s.busy++
	return active, nil
}

// leave ends what enter has begun.
func (s *Session) leave(i *instance, active bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	if active {
		s.last = time.Now()
	}
	if i.dead {
		return errCrashed
	}
	return nil
}

// record adds a request to the trace, and reports whether the disturbance is due. The index is that
// of the entry.
func (s *Session) record(e Entry) (due bool, index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[e.Op]++
	e.Op.Nth = s.seen[e.Op]
	s.trace = append(s.trace, e)
	if !s.fired && s.plan.At == e.Op && (s.plan.Kind == Missed) == e.User {
		s.fired, due = true, true
	}
	return due, len(s.trace) - 1
}

// answered records how the server answered a request.
func (s *Session) answered(index int, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace[index].Failed = failed
}

// crash ends a controller: its requests fail from now on.
func (s *Session) crash(i *instance) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashLocked(i)
	return errCrashed
}

// crashLocked ends a controller. Until supervise says that the next one starts, something goes on.
func (s *Session) crashLocked(i *instance) {
	if !i.dead && s.current == i {
		s.busy++
	}
	i.dead = true
	i.kill()
}

// isLock reports whether a request reads or writes the lock of a leader, and notes that the
// controller may hold it.
func (s *Session) isLock(c call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := c.object()
	if c.lock {
		s.locks[object] = true
	}
	_, known := s.locks[object]
	return known
}

// down ends the current controller and waits until it has ended.
func (s *Session) down(ctx context.Context) {
	s.mu.Lock()
	i := s.current
	if i != nil {
		s.crashLocked(i)
	}
	s.mu.Unlock()
	if i != nil {
		select {
		case <-i.ended:
		case <-ctx.Done():
		}
	}
}

// end says that what follows a controller's end is done.
func (s *Session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.last = time.Now()
}

// release lets the controller see what has been held back. It reports whether that was anything.
func (s *Session) release() bool {
	s.mu.Lock()
	i := s.current
	s.mu.Unlock()
	if i != nil && i.showPresent() {
		return true
	}
	return s.held.release()
}

// seesPast reports whether an instance sees an earlier state.
func (i *instance) seesPast() bool {
	if i.past == "" {
		return false
	}
	select {
	case <-i.present:
		return false
	default:
		return true
	}
}

// seesPastOf reports whether an instance sees an earlier state of a resource.
func (i *instance) seesPastOf(r schema.GroupVersionResource) bool {
	return i.seesPast() && (i.only == "" || i.only == r.GroupResource().String())
}

// startLimit is for how many times the time of a rest a silent controller counts as one that
// starts, and pastLimit for how many an instance sees the past. It may repeat a write that fails as
// long as it does.
const startLimit, pastLimit = 5, 5

// turn reports whether nothing has happened for the time of a rest, or the current instance has
// seen the past for long enough. It is called [turns] times in that time.
func (s *Session) turn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent++; s.busy > 0 || s.last != s.noted {
		s.silent, s.noted = 0, s.last
	}
	i := s.current
	if i == nil || i.dead {
		return s.silent >= turns
	}
	i.turns++
	past := i.seesPast()
	if (!i.requests || past && !i.looked) && i.turns < startLimit*turns {
		return false // it has not begun its work
	}
	return s.silent >= turns || past && i.looked && i.turns > pastLimit*turns
}

// looksBack notes that an instance looks at the past.
func (s *Session) looksBack(i *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !i.looked {
		i.looked, i.turns = true, 0
	}
}

// showPresent ends the earlier state. Only the goroutine that waits for rest calls it.
func (i *instance) showPresent() bool {
	if !i.seesPast() {
		return false
	}
	close(i.present)
	return true
}
