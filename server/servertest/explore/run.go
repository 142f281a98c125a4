package explore

import (
	"context"
	"flag"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/disturb"
	"github.com/kinproc/kinproc/server/servertest"
)

// maxVariable is the environment variable for Test.Max, and shortMax its value with -short.
const (
	maxVariable = "KINPROC_EXPLORE_MAX"
	shortMax    = 20
)

// progressInterval is the time between two lines about how far it is.
const progressInterval = 5 * time.Second

// exploration is one call of Run or Find.
type exploration[T testingT[T]] struct {
	t        T
	test     Test
	bubble   func(T, func(T)) // nil outside of bubbles
	prepared *server.Snapshot

	mu       sync.Mutex
	findings map[int]Finding // by the number of the disturbance
	tried    int
	idle     int // disturbances of what the controller did not do this time
	reported time.Time
}

func newExploration[T testingT[T]](t T, test Test, options []Option[T]) *exploration[T] {
	t.Helper()
	e := &exploration[T]{t: t, test: test, findings: map[int]Finding{}}
	for _, o := range options {
		e.bubble = o.bubble
	}
	if err := e.test.validate(); err != nil {
		t.Fatalf("explore: %v", err)
	}
	e.test.complete(e.bubble != nil)
	return e
}

// run tries all disturbances. Of each finding, it calls report in its subtest.
func (e *exploration[T]) run(report func(T, Finding)) []Finding {
	t := e.t
	t.Helper()
	begin := time.Now()
	err := e.inControlPlane(t, nil, func(s *scope, control *server.Server) (err error) {
		if e.test.Prepare != nil {
			e.test.Prepare(s, control)
		}
		e.prepared, err = control.Snapshot(s.Context())
		return err
	})
	if err != nil {
		t.Fatalf("explore: prepare: %v", err)
	}
	var undisturbed [2]*disturb.Outcome
	for i := range undisturbed {
		if undisturbed[i], err = e.try(t, disturb.Disturbance{}, nil); err != nil {
			t.Fatalf("explore: undisturbed: %v", err)
		}
	}
	lesson, err := disturb.Learn(undisturbed[0], undisturbed[1])
	if err != nil {
		t.Fatalf("explore: %v", err)
	}
	all := lesson.Disturbances(e.test.Seed)
	if n := e.max(); n > 0 && n < len(all) {
		all = all[:n]
	}
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				t.Run(all[i].Name(), func(t T) { e.disturb(t, i, len(all), all[i], lesson, report) })
			}
		})
	}
	for i := range all {
		if e.test.Budget > 0 && time.Since(begin) > e.test.Budget {
			t.Logf("explore: the budget of %v is used up: %d of %d disturbances were not tried",
				e.test.Budget, len(all)-i, len(all))
			break
		}
		next <- i
	}
	close(next)
	workers.Wait()
	t.Logf("explore: %d disturbances in %v: %d findings", e.tried,
		time.Since(begin).Round(100*time.Millisecond), len(e.findings))
	if e.idle > 0 {
		t.Logf("explore: in %d of them, the controller did not do what was to be disturbed", e.idle)
	}
	var findings []Finding
	for i := range all {
		if f, ok := e.findings[i]; ok {
			findings = append(findings, f)
		}
	}
	return slices.Clip(findings)
}

// disturb tries one disturbance of n.
func (e *exploration[T]) disturb(
	t T, i, n int, d disturb.Disturbance, lesson *disturb.Lesson, report func(T, Finding),
) {
	t.Helper()
	try := func() (*disturb.Outcome, error) { return e.try(t, d, lesson) }
	outcome, err := try()
	if err != nil {
		t.Fatalf("explore: %v", err)
	}
	found, err := lesson.Judge(d, outcome, try)
	if err != nil {
		t.Fatalf("explore: second try: %v", err)
	}
	e.mu.Lock()
	e.tried++
	if !outcome.Fired {
		e.idle++
	}
	if found != nil {
		e.findings[i] = Finding{Name: d.Name(), Report: found.String()}
	}
	tried, findings, due := e.tried, len(e.findings), time.Since(e.reported) > progressInterval
	if due {
		e.reported = time.Now()
	}
	e.mu.Unlock()
	if due {
		e.t.Logf("explore: %d of %d disturbances, %d findings", tried, n, findings)
	}
	if found != nil {
		report(t, Finding{Name: d.Name(), Report: found.String()})
	}
}

// try runs the case once, in a control plane of its own.
func (e *exploration[T]) try(
	t T, d disturb.Disturbance, lesson *disturb.Lesson,
) (outcome *disturb.Outcome, err error) {
	session := disturb.NewSession(d)
	err = e.inControlPlane(t, session, func(s *scope, control *server.Server) error {
		admin, err := control.InProcessConfig("explore", "system:masters")
		if err != nil {
			return err
		}
		outcome, err = e.test.engine(s).Run(s.Context(), session, admin, lesson)
		return err
	})
	return outcome, err
}

// inControlPlane calls f with a control plane, in a bubble if that is asked for. Without a session,
// the control plane is the one to prepare.
func (e *exploration[T]) inControlPlane(
	t T, session *disturb.Session, f func(*scope, *server.Server) error,
) error {
	var result error
	body := func(t T) {
		deadline := func() (time.Time, bool) { return time.Time{}, false }
		if d, ok := any(t).(interface{ Deadline() (time.Time, bool) }); ok {
			deadline = d.Deadline
		}
		s := &scope{ctx: context.Background(), rest: func() {}, deadline: deadline}
		s.do(func() {
			options := slices.Clone(e.test.Options)
			if e.bubble != nil {
				options = append(options, servertest.InBubble)
			}
			if session != nil {
				options = append(options, servertest.From(e.prepared), func(o *server.Options) {
					o.AuditBackend = session
				})
			}
			if err := f(s, servertest.Run(s, options...)); err != nil {
				s.Errorf("%w", err)
			}
		})
		result = s.end()
	}
	if e.bubble == nil {
		body(t)
	} else {
		e.bubble(t, body)
	}
	return result
}

// max returns how many disturbances are tried at most, or 0 for all.
func (e *exploration[T]) max() int {
	if value, err := strconv.Atoi(os.Getenv(maxVariable)); err == nil {
		return value
	}
	if e.test.Max > 0 {
		return e.test.Max
	}
	if short := flag.Lookup("test.short"); short != nil && short.Value.String() == "true" {
		return shortMax
	}
	return 0
}
