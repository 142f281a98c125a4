package disturb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// A Case is a controller, and what a user does while it runs.
type Case struct {
	// Controller runs until ctx ends.
	Controller func(ctx context.Context, config *rest.Config) error
	// Act does what the user does. Rest waits until the system is at rest.
	Act func(ctx context.Context, config *rest.Config, rest func()) error
	// Mask removes from an object what may differ. It may be nil.
	Mask func(*unstructured.Unstructured)
	// The system is at rest if nothing has happened for the time Settle. It must be within the time
	// Patience, and the end state must be as in an undisturbed run.
	Settle, Patience time.Duration
}

// stopTimeout limits how long a controller may take to end when its context does.
const stopTimeout = 30 * time.Second

// undisturbedLimit is the number of requests after which a controller does not come to rest even if
// nobody disturbs it.
const undisturbedLimit = 10_000

// totalLimit is the number of requests that end every run.
const totalLimit = 100_000

// Outcome is what has become of a run.
type Outcome struct {
	// Fired is false if the controller did not do this time what was to be disturbed.
	Fired bool
	// Problems are what is wrong with the run itself, whatever its end state is.
	Problems []string

	trace    []Entry
	requests int
	endless  bool
	state    State
	deleted  map[string]int
	story    []string // the histories of objects that are not as they should be
	took     time.Duration
	// all are the resources of the control plane, precious those that [isPrecious] reports.
	all, precious []schema.GroupVersionResource
}

// Run runs the case in a control plane whose audit backend is the session, with the access of its
// administrator. Without a lesson, the run is one to learn from.
func (c *Case) Run(
	ctx context.Context, s *Session, admin *rest.Config, lesson *Lesson,
) (_ *Outcome, err error) {
	begin := time.Now()
	o := &Outcome{}
	s.limit = undisturbedLimit
	if lesson == nil {
		o.all, o.precious, err = resources(admin)
	} else {
		o.all, o.precious = lesson.all, lesson.precious
		s.limit = lesson.limit
	}
	if err != nil {
		return nil, err
	}
	if s.cluster, err = openCluster(ctx, admin, o.precious); err != nil {
		return nil, err
	}
	defer s.cluster.close()
	patience := c.Patience
	if lesson != nil {
		patience = max(patience, 5*lesson.took)
	}
	attending, stopAttending := context.WithCancel(ctx)
	attended := make(chan struct{})
	go func() {
		defer close(attended)
		s.attend(attending, c.Settle)
	}()
	defer func() { stopAttending(); <-attended }()
	running, stop := context.WithCancel(ctx)
	ended := make(chan []string, 1)
	go func() { ended <- c.supervise(running, s, admin) }()

	s.rest(ctx, patience)
	acting, cancel := context.WithTimeout(ctx, patience)
	config := rest.CopyConfig(admin)
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { return &userTransport{s, base} })
	err = c.Act(acting, config, func() { s.rest(acting, patience) })
	cancel()
	if err != nil {
		o.Problems = append(o.Problems, fmt.Sprintf("What the user does failed: %v", err))
	}
	err = c.observe(ctx, s, lesson, o, patience)
	if err == nil && lesson != nil && !o.endless {
		o.story = story(ctx, admin, lesson, o)
	}
	stop()
	select {
	case problems := <-ended:
		o.Problems = append(o.Problems, problems...)
	case <-time.After(stopTimeout):
		o.Problems = append(o.Problems,
			fmt.Sprintf("The controller did not end within %v after its context.", stopTimeout))
	}
	o.took = time.Since(begin)
	return o, err
}

// observe waits until the system is at rest and as it should be, or until the patience is at an
// end. The time between two attempts of a controller may be longer than that of a rest.
func (c *Case) observe(
	ctx context.Context, s *Session, lesson *Lesson, o *Outcome, patience time.Duration,
) error {
	deadline := time.Now().Add(patience)
	for {
		rested := s.rest(ctx, max(time.Until(deadline), 2*c.Settle))
		var err error
		if o.state, err = s.cluster.read(ctx, s.resources(o, lesson), c.Mask); err != nil {
			return err
		}
		s.cluster.mu.Lock()
		o.deleted = maps.Clone(s.cluster.deleted)
		s.cluster.mu.Unlock()
		s.mu.Lock()
		o.trace, o.requests, o.Fired = slices.Clone(s.trace), s.requests, s.fired
		over := s.over
		o.endless = s.endless > 0
		trace := s.trace[:s.endless]
		s.mu.Unlock()
		held := s.plan.Kind == Coalesced || s.plan.Kind == Delayed
		o.Fired = o.Fired || held && s.held.shown()
		late := !time.Now().Before(deadline)
		switch {
		case o.endless:
			o.Problems = append(o.Problems, fmt.Sprintf(
				"The controller does not come to rest: it was stopped after %d requests. The last ones:%s",
				s.limit, lines(trace, 4)))
			return nil
		case !rested && late:
			o.Problems = append(o.Problems, fmt.Sprintf(
				"The system has not come to rest within %v. The last requests:%s",
				patience, lines(o.trace, 4)))
			return nil
		case late, over, rested && (lesson == nil || len(lesson.compare(o)) == 0):
			return nil
		}
		sleep(ctx, patience/20)
	}
}

// lines returns a line for each of the last requests.
func lines(trace []Entry, n int) string {
	text := ""
	for _, e := range trace[max(0, len(trace)-n):] {
		text += "\n  " + e.Op.String()
		if e.Caller != "" {
			text += ", at " + e.Caller
		}
	}
	return text
}

// resources returns whose objects are part of the state. Most resources have none.
func (s *Session) resources(o *Outcome, lesson *Lesson) []schema.GroupVersionResource {
	if lesson == nil {
		return o.all
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var some []schema.GroupVersionResource
	for _, r := range o.all {
		if lesson.used[r.GroupResource()] || s.written[r.GroupResource()] {
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
		s.over = !crashed && ctx.Err() == nil
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
			return []string{"The controller ended by itself."}
		case !crashed:
			s.end()
			return []string{"The controller ended: " + err.Error()}
		}
		s.expireLocks(ctx)
		if s.plan.Kind == Missed {
			sleep(ctx, c.Settle)
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

// turns is how often attend looks while the system comes to rest.
const turns = 20

// attend looks for rests until ctx ends. In one, it shows the controller what has been held back.
// It counts how often it has looked, not the time: where others keep the processors busy, its turns
// take longer, as the work of the controller does.
func (s *Session) attend(ctx context.Context, settle time.Duration) {
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
		if s.rested != nil {
			close(s.rested)
			s.rested = nil
		}
		s.mu.Unlock()
	}
}

// rest waits until the system is at rest, and reports whether it is.
func (s *Session) rest(ctx context.Context, patience time.Duration) bool {
	s.mu.Lock()
	s.last = time.Now()
	if s.rested == nil {
		s.rested = make(chan struct{})
	}
	rested := s.rested
	s.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-rested:
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
