package disturb

import (
	"context"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"

	"github.com/kinproc/kinproc/server/internal/invariant"
)

// An Entry is a request of a run.
type Entry struct {
	Op     Op
	By     Actor
	Caller Caller
	// Changed is true of a write that the server has carried out, and that has changed something.
	Changed bool

	precondition bool
	created      bool   // the write has created the object
	revision     string // that the write has made, unless the answer does not say it
	disturbed    bool
	when         time.Time
	saw          string // what the client learnt of it, if it was not success
}

// An Actor is who sends a request.
type Actor int

// The actors. Others are control loops and kubelets.
const (
	Controller Actor = iota
	User
	Others
)

// String returns the name of the actor in reports.
func (a Actor) String() string { return [...]string{"controller", "user", "others"}[a] }

// UserName is the name that the credentials of the controller and of the user have.
const UserName = "explore"

// A Session is one run of a case. As the audit backend of the control plane, it learns what happens
// there.
type Session struct {
	// Settle, if it is not 0, takes the place of that of the case.
	Settle time.Duration
	// Detailed adds the events of watches to the timeline.
	Detailed bool

	plan  Disturbance
	back  chan struct{} // closed when a controller that was away comes back
	limit int           // of the controller's requests
	// holdWhileWaiting is that of the case.
	holdWhileWaiting bool
	cluster          *cluster
	always           *invariant.Checker

	mu    sync.Mutex
	act   int // of the user, from 1, or 0 before the first
	trace []Entry
	notes []note
	seen  map[Op]int // how often, by Op without Nth
	fired bool
	// firedAt is the index in the trace where that was, and firedThen whether the second
	// disturbance of a pair has happened.
	firedAt   int
	firedThen bool
	// problems are what cannot become right any more.
	problems []Problem
	// requests are those of the controller that show that it is not idle, total are all.
	requests, total int
	repeated        map[Op]int // since the last change
	// endless is the length of the trace when there were too many requests.
	endless int
	// missing are group versions at which the controller has found nothing.
	missing map[schema.GroupVersion]bool
	// written are the resources of which somebody has changed an object.
	written map[schema.GroupResource]bool
	// changedAt is when somebody last changed something.
	changedAt time.Time
	// last is when something happened that shows that the system is not idle, and busy counts what
	// goes on. Nothing has happened for a number of turns of monitor, which had seen the last
	// event.
	last, noted  time.Time
	busy, silent int
	// longest is for how many turns nothing has happened at most until the system went on.
	longest int

	current *instance
	exited  bool          // the controller has returned before its context ended
	past    string        // the revision that the next instance sees at first
	idle    chan struct{} // closed when the system is idle; nil if nobody waits
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
	// past, and the number of monitor's turns since it started or looked.
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
		repeated: map[Op]int{},
		written:  map[schema.GroupResource]bool{},
	}
}

// Name returns the name of the disturbance.
func (s *Session) Name() string { return s.plan.Name() }

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
		s.written[object.Resource.GroupResource()] = true
		if e.User.Username != UserName { // the transports know more about the others
			object.Verb, object.Subresource = e.Verb, ref.Subresource
			s.trace = append(s.trace, Entry{Op: object, By: Others, Changed: true, when: time.Now()})
			s.changedLocked()
		}
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

// oftenRepeated is how often a request is work. A controller that repeats it more often although
// nobody changes anything polls, and may be idle nevertheless.
const oftenRepeated = 3

// enter counts a request that begins. It returns an error if the controller has crashed, and
// whether the request shows that the system is not idle.
func (s *Session) enter(i *instance, o Op) (active bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.dead {
		return false, errCrashed
	}
	i.requests = true
	s.total++
	s.repeated[o]++
	active = s.repeated[o] <= oftenRepeated
	if active {
		s.last = time.Now()
	}
	if active || o.writes() {
		s.requests++
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

// record adds a request to the trace, and returns what disturbance is due. The index is that of the
// entry.
func (s *Session) record(e Entry) (due Kind, index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.Op.Act = s.act
	s.seen[e.Op]++
	e.Op.Nth = s.seen[e.Op]
	index = len(s.trace)
	then := s.plan.Then
	switch {
	case !s.fired && s.plan.At == e.Op && (s.plan.Kind == Missed) == (e.By == User):
		s.fired, s.firedAt, due = true, index, s.plan.Kind
	case s.fired && !s.firedThen && then.Kind != None && then.At == e.Op && e.By == Controller:
		s.firedThen, due = true, then.Kind
	}
	e.when, e.disturbed = time.Now(), due != None
	s.trace = append(s.trace, e)
	return due, index
}

// missed says that there was nothing to disturb at a write.
func (s *Session) missed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fired = false
}

// changed records that a write has changed something, or created it, at a revision.
func (s *Session) changed(index int, created bool, revision string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &s.trace[index]
	e.Changed, e.created, e.revision = true, created && e.Op.Subresource == "", revision
	s.changedLocked()
}

// changedLocked notes that somebody has changed something, so that the system is not idle.
func (s *Session) changedLocked() {
	s.last = time.Now()
	s.changedAt = s.last
	clear(s.repeated)
}

// actOf returns the present act of the user.
func (s *Session) actOf() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.act
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
	if !i.dead {
		s.noteLocked("The controller crashes.")
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

// begin says that something goes on until end.
func (s *Session) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
}

// end says that what follows a controller's end is done.
func (s *Session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.last = time.Now()
}

// comeBack ends the time in which a controller is away.
func (s *Session) comeBack() (wasAway bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.back:
		return false
	default:
		close(s.back)
		return true
	}
}

// endAct says that the user waits until the system is idle.
func (s *Session) endAct() {
	s.mu.Lock()
	away := s.fired && s.plan.Kind == Missed && s.plan.Until == (Op{})
	s.mu.Unlock()
	if away {
		s.comeBack()
	}
}

// holds reports whether what follows from the user's next write is to be held back.
func (s *Session) holds() bool {
	switch s.plan.Kind {
	case Delayed:
		return true
	case Coalesced:
		act := s.actOf()
		return s.plan.Act == 0 || act == s.plan.Act || act == s.plan.Act+1
	}
	return false
}

// nextAct begins the next act of the user.
func (s *Session) nextAct() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.act++
}

// userWroteLocked reports whether the user has written something in this act.
func (s *Session) userWroteLocked() bool {
	return slices.ContainsFunc(s.trace, func(e Entry) bool {
		return e.By == User && e.Op.Act == s.act
	})
}

// release lets the controller see what has been held back, and come back if the user waits for it.
// It reports whether that was anything.
func (s *Session) release() bool {
	s.mu.Lock()
	i := s.current
	acting := s.idle == nil // the user waits for something else than an idle system
	later := s.plan.Act > 0 && (acting && !s.userWroteLocked() || !acting && s.act <= s.plan.Act) ||
		(s.plan.Kind == Coalesced || s.plan.Kind == Delayed) && s.holdWhileWaiting && acting
	awaited := s.plan.Until != (Op{}) && s.fired && !s.holdWhileWaiting && acting &&
		s.userWroteLocked()
	s.mu.Unlock()
	if later {
		return false
	}
	if awaited && s.comeBack() {
		return true
	}
	if i != nil && i.showPresent() {
		s.note("The controller sees the present.")
		return true
	}
	some, shown := s.held.release()
	for _, e := range shown {
		s.note("The controller sees what was held back: %s.", e)
	}
	return some
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

// startLimit is for how many times the time Settle a silent controller counts as one that starts,
// and pastLimit for how many an instance sees the past. It may repeat a write that fails as
// long as it does.
const startLimit, pastLimit = 5, 5

// turn reports whether nothing has happened for the time Settle, or the current instance has
// seen the past for long enough. It is called [turns] times in that time.
func (s *Session) turn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.current
	if s.silent++; s.busy > 0 || s.last != s.noted {
		if s.silent < turns && i != nil && i.requests {
			s.longest = max(s.longest, s.silent)
		}
		s.silent, s.noted = 0, s.last
	}
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

// longestPause returns how long nothing has happened at most until the system went on with its
// work.
func (s *Session) longestPause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.longest) * s.Settle / turns
}

// looksBack notes that an instance looks at the past.
func (s *Session) looksBack(i *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !i.looked {
		i.looked, i.turns = true, 0
	}
}

// showPresent ends the earlier state. Only monitor calls it.
func (i *instance) showPresent() bool {
	if !i.seesPast() {
		return false
	}
	close(i.present)
	return true
}
