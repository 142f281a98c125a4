package disturb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/internal/invariant"
)

// A Case is a controller, and what a user does while it runs.
type Case struct {
	// Controller runs until ctx ends.
	Controller func(ctx context.Context, config *rest.Config) error
	// Act does what the user does. WaitIdle waits until the system is idle.
	Act func(ctx context.Context, config *rest.Config, waitIdle func()) error
	// Mask removes from an object what may differ. It may be nil.
	Mask func(*unstructured.Unstructured)
	// HoldWhileWaiting holds events back, and keeps the controller away when it is to miss a
	// change, until Act ends or waits for WaitIdle, even if the system is idle before that.
	HoldWhileWaiting bool
	// Always is what is to be true at each revision.
	Always []*invariant.Rule
	// The system is idle if nothing has happened for the time Settle. It must be within the time
	// Patience, and the final state must be as in an undisturbed run.
	Settle, Patience time.Duration
	// LeastSettle, if it is not 0, lets the undisturbed runs show how long a pause in the work can
	// be: after that, Settle is a multiple of it, but not less than LeastSettle.
	LeastSettle time.Duration
	// Silence ends the patience with a system that is idle, but not as it should be, when the
	// controller has sent no request for that time. Default: Patience.
	Silence time.Duration
}

// pausesToSettle is how many times as long as a pause of the undisturbed runs the time to settle
// is. Many runs at a time are slower than one.
const pausesToSettle = 5

// stopTimeout limits how long a controller may take to end when its context does.
const stopTimeout = 30 * time.Second

// undisturbedLimit is the number of requests after which a controller does not become idle even if
// nobody disturbs it.
const undisturbedLimit = 10_000

// totalLimit is the number of requests that end every run.
const totalLimit = 100_000

// Outcome is what has become of a run.
type Outcome struct {
	// Fired is false if the controller did not do this time what was to be disturbed.
	Fired bool
	// Problems are what is wrong with the run itself, whatever its final state is.
	Problems []Problem

	// lasting are the problems that the controller cannot put right any more.
	lasting  []Problem
	begin    time.Time
	trace    []Entry
	notes    []note
	requests int
	endless  bool
	state    State
	kind     Kind
	settle   time.Duration
	counts   counts
	versions []Versions // of the objects that are not as they should be
	took     time.Duration
	all      []schema.GroupVersionResource // of the control plane
	always   *invariant.Set
	warnings []string // the events of an undisturbed run that went wrong
	unserved []string // group versions that the controller has asked for
	firedAt  int      // the index in the trace at which the disturbance happened
	byChance []string // objects whose counts are wrong by chance: see [Baseline.Learn]
}

// Settle returns the time to settle that the run has shown to be enough.
func (o *Outcome) Settle() time.Duration { return o.settle }

// Run runs the case in a control plane whose audit backend is the session, with the access of its
// administrator. Without a baseline, the run is one of those that make it.
func (c *Case) Run(
	ctx context.Context, s *Session, admin *rest.Config, baseline *Baseline,
) (_ *Outcome, err error) {
	o := &Outcome{kind: s.plan.Kind, begin: time.Now()}
	s.limit, s.holdWhileWaiting = undisturbedLimit, c.HoldWhileWaiting
	if baseline != nil {
		s.Settle = baseline.settle
	}
	s.Settle = cmp.Or(s.Settle, c.Settle)
	s.back = make(chan struct{}) // here, because Run may be in a bubble
	var counted []schema.GroupVersionResource
	if baseline == nil {
		if o.all, err = resources(admin); err == nil {
			o.always, err = invariant.Compile(c.Always, o.all)
		}
		counted = o.all
	} else {
		o.all, counted, o.always = baseline.all, baseline.counted, baseline.always
		s.limit = baseline.limit
	}
	if err != nil {
		return nil, err
	}
	if s.cluster, err = openCluster(ctx, admin, counted); err != nil {
		return nil, err
	}
	defer s.cluster.close()
	if s.always, err = o.always.Watch(ctx, s.cluster.dynamic); err != nil {
		return nil, err
	}
	defer s.always.Close()
	patience := c.Patience
	if baseline != nil {
		patience = max(patience, 5*baseline.took)
	}
	monitoring, stopMonitor := context.WithCancel(ctx)
	var monitor sync.WaitGroup
	monitor.Go(func() { s.monitor(monitoring, s.Settle) })
	defer func() { stopMonitor(); monitor.Wait() }()
	running, stop := context.WithCancel(ctx)
	ended := make(chan []string, 1)
	go func() { ended <- c.supervise(running, s, admin) }()

	s.waitIdle(ctx, patience)
	acting, cancel := context.WithTimeout(ctx, patience)
	config := rest.CopyConfig(admin)
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { return &userTransport{s, base} })
	s.nextAct()
	err = c.Act(acting, config, func() { s.endAct(); s.waitIdle(acting, patience); s.nextAct() })
	cancel()
	s.comeBack()
	if err != nil {
		o.add(Failed, fmt.Sprintf("The user's steps failed: %v", err))
	}
	err = c.observe(ctx, s, baseline, o, patience)
	if err == nil && baseline == nil && len(o.Problems) == 0 {
		err = s.stayIdle(ctx, 2*s.Settle)
	}
	if err == nil && baseline != nil && !o.endless {
		o.versions = versionsOf(ctx, admin, o, baseline.compare(o))
	}
	stop()
	select {
	case problems := <-ended:
		for _, p := range problems {
			o.add(Failed, p)
		}
	case <-time.After(stopTimeout):
		o.add(Failed, fmt.Sprintf("The controller was still running %v after its context had ended.",
			stopTimeout))
	}
	if baseline == nil && len(o.Problems)+len(o.lasting) > 0 {
		o.warnings = s.cluster.warnings(ctx)
	}
	if baseline == nil && err == nil {
		o.unserved, err = s.unserved(admin)
	}
	o.took, o.settle = time.Since(o.begin), s.Settle
	if c.LeastSettle != 0 {
		o.settle = min(s.Settle, max(c.LeastSettle, pausesToSettle*s.longestPause()))
	}
	return o, err
}

func (o *Outcome) add(kind ProblemKind, message string) {
	o.Problems = append(o.Problems, Problem{Kind: kind, Message: message})
}

// A SettleError says that the controller changed something when the system had seemed to be idle:
// it was only between two steps of its work.
type SettleError struct {
	// Pause is how long it had been, and Use a time to settle that is long enough for that.
	Pause, Use time.Duration
	write      Op
}

// Error implements error.
func (e *SettleError) Error() string {
	return fmt.Sprintf("the controller still changed something when the system had been idle for %v "+
		"(%s): use a longer time to settle, such as --settle %v or Test.Settle",
		e.Pause.Round(time.Millisecond), e.write, e.Use)
}

// stayIdle waits for some time, and returns a [SettleError] if the controller changes something.
func (s *Session) stayIdle(ctx context.Context, d time.Duration) error {
	s.mu.Lock()
	before, last := len(s.trace), s.changedAt
	s.mu.Unlock()
	sleep(ctx, d)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.trace[before:] {
		if e.By == Controller && e.Changed {
			pause := e.when.Sub(last)
			use := (pause + pause/2).Truncate(time.Second) + time.Second
			return &SettleError{Pause: pause, Use: use, write: e.Op}
		}
	}
	return nil
}

// observe waits until the system is idle and as it should be, or until the patience is at an end.
// The time between two attempts of a controller may be longer than c.Settle.
func (c *Case) observe(
	ctx context.Context, s *Session, baseline *Baseline, o *Outcome, patience time.Duration,
) error {
	deadline := time.Now().Add(patience)
	silence := c.Silence
	if silence == 0 {
		silence = patience
	}
	total, since := -1, time.Now() // requests, and when their number last changed
	for {
		idle := s.waitIdle(ctx, max(time.Until(deadline), 2*s.Settle))
		err := s.checkAlways(ctx)
		if err != nil {
			return err
		}
		if o.state, err = s.cluster.read(ctx, s.resources(o, baseline), c.Mask); err != nil {
			return err
		}
		s.cluster.mu.Lock()
		o.counts = maps.Clone(s.cluster.counts)
		s.cluster.mu.Unlock()
		s.mu.Lock()
		o.trace, o.requests, o.Fired = slices.Clone(s.trace), s.requests, s.fired
		o.lasting, o.notes = slices.Clone(s.problems), slices.Clone(s.notes)
		o.firedAt = s.firedAt
		if s.plan.Then.Kind != None {
			o.Fired = s.firedThen
		}
		exited := s.exited
		if s.total != total {
			total, since = s.total, time.Now()
		}
		o.endless = s.endless > 0
		trace := s.trace[:s.endless]
		s.mu.Unlock()
		o.Fired = o.Fired || s.held.shown()
		late := !time.Now().Before(deadline)
		switch {
		case o.endless:
			o.add(Busy, fmt.Sprintf(
				"The controller does not become idle: it was stopped after %d requests. "+
					"The last ones:%s", s.limit, lines(trace, 4)))
			return nil
		case !idle && late:
			o.add(Busy, fmt.Sprintf("The system did not become idle within %v. The last requests:%s",
				patience, lines(o.trace, 4)))
			return nil
		case late, exited, idle && (baseline == nil || baseline.final(o)),
			idle && time.Since(since) > silence:
			return nil
		}
		sleep(ctx, patience/20)
	}
}

// lines returns a line for each of the last requests.
func lines(trace []Entry, n int) string {
	text := ""
	trace = slices.DeleteFunc(slices.Clone(trace), func(e Entry) bool { return e.By == Others })
	for _, e := range trace[max(0, len(trace)-n):] {
		text += "\n  " + e.Op.String()
		if e.Caller != (Caller{}) {
			text += ", at " + e.Caller.String()
		}
	}
	return text
}

// resources returns whose objects are part of the state. Most resources have none.
func (s *Session) resources(o *Outcome, baseline *Baseline) []schema.GroupVersionResource {
	if baseline == nil {
		return o.all
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var some []schema.GroupVersionResource
	for _, r := range o.all {
		if baseline.used[r.GroupResource()] || s.written[r.GroupResource()] {
			some = append(some, r)
		}
	}
	return some
}

// supervise runs the controller, and another one after each crash. It returns what was wrong with
// how the controllers ended.
func (c *Case) supervise(ctx context.Context, s *Session, admin *rest.Config) []string {
	for {
		i := &instance{ended: make(chan struct{})}
		i.ctx, i.kill = context.WithCancel(ctx)
		s.mu.Lock()
		if i.past = s.past; i.past != "" {
			i.present = make(chan struct{})
			if s.plan.Only {
				i.only = s.plan.View.Resource.GroupResource().String()
			}
			s.past = ""
		}
		s.current = i
		s.last = time.Now()
		if i.past == "" {
			s.noteLocked("A controller starts.")
		} else {
			s.noteLocked("A controller starts, and its cache has the past, revision %s.", i.past)
		}
		s.mu.Unlock()
		config := rest.CopyConfig(admin)
		config.Wrap(func(base http.RoundTripper) http.RoundTripper { return &transport{s, i, base} })
		err := attempt(i.ctx, c.Controller, config)
		i.kill()
		s.mu.Lock()
		s.current = nil
		crashed, endless := i.dead, s.endless > 0
		if !crashed {
			s.busy++ // until s.end, as after a crash
		}
		close(i.ended)
		s.exited = !crashed && ctx.Err() == nil
		s.mu.Unlock()
		problem := errors.As(err, new(panicked))
		switch {
		case ctx.Err() != nil || endless:
			s.end()
			if problem {
				return []string{err.Error()}
			}
			return nil
		case !crashed && err == nil:
			s.end()
			return []string{"The controller exited without an error."}
		case !crashed:
			s.end()
			return []string{"The controller exited: " + err.Error()}
		}
		s.expireLocks(ctx)
		if s.plan.Kind == Missed {
			if s.plan.Until != (Op{}) || s.holdWhileWaiting {
				s.end() // without a controller, the system can be idle
				select {
				case <-s.back:
				case <-ctx.Done():
				}
				s.begin()
			}
			sleep(ctx, s.Settle)
		}
		s.end()
	}
}

// expireLocks deletes the locks of a controller that has crashed, so that the next one need not
// wait until they expire.
func (s *Session) expireLocks(ctx context.Context) {
	s.mu.Lock()
	var held []Op
	for l, may := range s.locks {
		if may {
			held = append(held, l)
			s.locks[l] = false
		}
	}
	s.mu.Unlock()
	for _, l := range held {
		// If it fails, the next controller waits.
		_ = s.cluster.resource(l.Resource, l.Namespace).Delete(ctx, l.Name, metav1.DeleteOptions{})
	}
}

// panicked is the error of a controller that has panicked.
type panicked string

// Error implements error.
func (p panicked) Error() string { return string(p) }

// attempt calls a controller.
func attempt(
	ctx context.Context, controller func(context.Context, *rest.Config) error, config *rest.Config,
) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked(fmt.Sprintf("panic: %v\n%s", r, debug.Stack()))
		}
	}()
	return controller(ctx, config)
}

// turns is how often monitor looks during the time Settle.
const turns = 20

// monitor looks whether the system is idle until ctx ends. If so, it shows the controller what has
// been held back. It counts how often it has looked, not the time: where others keep the processors
// busy, its turns take longer, as the work of the controller does.
func (s *Session) monitor(ctx context.Context, settle time.Duration) {
	for ctx.Err() == nil {
		sleep(ctx, settle/turns)
		if !s.turn() {
			continue
		}
		if s.release() {
			s.active()
			continue
		}
		s.mu.Lock()
		if s.idle != nil {
			close(s.idle)
			s.idle = nil
		}
		s.mu.Unlock()
	}
}

// waitIdle waits until the system is idle, and reports whether it is.
func (s *Session) waitIdle(ctx context.Context, patience time.Duration) bool {
	s.mu.Lock()
	s.last = time.Now()
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-idle:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

func (s *Session) active() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
