package explore

import (
	"cmp"
	"context"
	"flag"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/disturb"
	"github.com/kinproc/kinproc/server/internal/explorer"
	"github.com/kinproc/kinproc/server/servertest"
)

// maxVariable is the environment variable for Test.Max, and shortMax its value with -short.
const (
	maxVariable = "KINPROC_EXPLORE_MAX"
	shortMax    = 20
)

// progressInterval is the time between two lines of progress.
const progressInterval = 5 * time.Second

// run tries all disturbances. Of each finding, it calls fail in its subtest.
func run(t *testing.T, test Test, fail func(t *testing.T, report string)) []Finding {
	t.Helper()
	if err := test.validate(); err != nil {
		t.Fatalf("explore: %v", err)
	}
	test.complete()
	var prepared *server.Snapshot
	in := func(of *testing.T) explorer.Try {
		return func(_ context.Context, session *disturb.Session, baseline *disturb.Baseline) (
			*disturb.Outcome, error,
		) {
			return test.try(of, prepared, session, baseline)
		}
	}
	var reported time.Time
	e := explorer.Exploration{
		Prepare: func(context.Context) error {
			return test.inControlPlane(t, nil, func(s *scope, control *server.Server) (err error) {
				if test.Prepare != nil {
					test.Prepare(s, control)
				}
				prepared, err = control.Snapshot(s.Context())
				return err
			})
		},
		Try: in(t),
		Scope: func(name string, attempt func(explorer.Try) (*explorer.Result, error)) error {
			tried := false
			t.Run(name, func(t *testing.T) {
				tried = true
				result, err := attempt(in(t))
				if err != nil {
					t.Fatalf("explore: %v", err)
				}
				if result.Report != "" {
					fail(t, result.Report)
				}
			})
			if !tried && test.Pairs && isFirst(name) {
				_, err := attempt(in(t))
				return err
			}
			return nil // the others are tried nevertheless
		},
		Progress: func(_ *explorer.Result, p explorer.Progress) {
			if time.Since(reported) > progressInterval {
				reported = time.Now()
				t.Logf("explore: %d of %d disturbances, %d findings, about %v left", p.Tried, p.Of,
					p.Findings, p.Left.Round(time.Second))
			}
		},
		Names: test.Only, Pairs: test.Pairs, Max: test.max(), Budget: test.Budget, Seed: test.Seed,
		Parallel: func() int { return cmp.Or(test.Parallel, runtime.GOMAXPROCS(0)) },
	}
	ref, by := test.since()
	unchanged := 0
	if ref != "" {
		changed, err := changesSince(context.Background(), ref)
		if err != nil {
			t.Fatalf("explore: %s: %v", by, err)
		}
		e.Only = func(d disturb.Disturbance) bool {
			concerned := changed.concern(d)
			if !concerned {
				unchanged++
			}
			return concerned
		}
	}
	report, err := e.Run(context.Background())
	if err != nil {
		t.Fatalf("explore: %v", err)
	}
	if report.OverBudget {
		t.Logf("explore: the budget of %v is used up: %d disturbances were not tried", test.Budget,
			len(report.NotTried))
	}
	t.Logf("explore: %d disturbances in %.1f s: %d findings", len(report.Results), report.Seconds,
		report.Findings)
	if unchanged > 0 {
		t.Logf("explore: %d disturbances were left out, because their line of code is as in %s", unchanged,
			ref)
	}
	missing := 0
	var findings []Finding
	for _, r := range report.Results {
		if !r.Happened {
			missing++
		}
		if r.Report != "" {
			findings = append(findings, Finding{Name: r.Name, Report: r.Report})
		}
	}
	if missing > 0 {
		t.Logf("explore: in %d of them, the controller did not do what was to be disturbed",
			missing)
	}
	return findings
}

// isFirst reports whether the flag -run of go test selects pairs that begin with a disturbance.
func isFirst(name string) bool {
	run := flag.Lookup("test.run").Value.String()
	first, _, pairs := strings.Cut(run[strings.LastIndex(run, "/")+1:], disturb.Then)
	matches, err := regexp.MatchString("^(?:"+strings.TrimPrefix(first, "^")+")$", name)
	return pairs && matches && err == nil
}

// try runs the controller once, in a control plane of a test that begins with a snapshot.
func (t *Test) try(
	of *testing.T, from *server.Snapshot, session *disturb.Session, baseline *disturb.Baseline,
) (outcome *disturb.Outcome, err error) {
	options := []func(*server.Options){
		servertest.From(from), func(o *server.Options) { o.AuditBackend = session },
	}
	err = t.inControlPlane(of, options, func(s *scope, control *server.Server) error {
		admin, err := control.InProcessConfig(disturb.UserName, "system:masters")
		if err != nil {
			return err
		}
		outcome, err = t.engine(s).Run(s.Context(), session, admin, baseline)
		return err
	})
	return outcome, err
}

// inControlPlane calls f with a control plane, in a bubble if that is asked for.
func (t *Test) inControlPlane(
	of *testing.T, more []func(*server.Options), f func(*scope, *server.Server) error,
) error {
	var result error
	body := func(of *testing.T) {
		s := &scope{ctx: context.Background(), waitIdle: func() {}, deadline: of.Deadline}
		s.do(func() {
			options := slices.Clone(t.Options)
			if t.InBubbles {
				options = append(options, servertest.InBubble)
			}
			if err := f(s, servertest.Run(s, append(options, more...)...)); err != nil {
				s.Errorf("%w", err)
			}
		})
		result = s.end()
	}
	if t.InBubbles {
		synctest.Test(of, body)
	} else {
		body(of)
	}
	return result
}

// max returns how many disturbances are tried at most, or 0 for all.
func (t *Test) max() int {
	switch value, err := strconv.Atoi(os.Getenv(maxVariable)); {
	case err == nil:
		return value
	case t.Max > 0:
		return t.Max
	case testing.Short():
		return shortMax
	}
	return 0
}
