// Package explorer is the loop of an exploration: it runs a controller undisturbed, plans the
// disturbances, tries one after the other, repeats what it finds, and reports.
//
// What differs between a test of Go and a program, how a control plane and a controller start and
// what the user does, is up to the caller.
package explorer

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kinproc/kinproc/server/internal/disturb"
	"github.com/kinproc/kinproc/server/internal/nearest"
)

// A Try runs the controller once, in a control plane of its own whose audit backend is the session.
// Without a baseline, the run is one of those that make it.
type Try func(context.Context, *disturb.Session, *disturb.Baseline) (*disturb.Outcome, error)

// Exploration says how to explore a controller.
type Exploration struct {
	// Prepare makes what every control plane begins with.
	Prepare func(context.Context) error
	// Try tries what is not in a scope.
	Try Try
	// Scope calls attempt with how to try the disturbance of that name, such as in a subtest.
	// Several goroutines call it. An error ends the exploration. Default: all are tried by Try.
	Scope func(name string, attempt func(Try) (*Result, error)) error
	// Progress is called after each disturbance, if it is not nil, and never twice at a time.
	Progress func(*Result, Progress)

	// Names selects the disturbances to try by patterns as of [path.Match]. The name of a kind, as
	// of [disturb.Kind.String], selects all of the kind. Default: all.
	Names []string
	// Only, if it is not nil, leaves out the disturbances for which it returns false.
	Only func(disturb.Disturbance) bool
	// Pairs tries a crash during the recovery from another disturbance, too: those of the
	// disturbances that are no findings. A pattern for a pair selects its first disturbance too.
	Pairs bool
	// Max limits the number of disturbances, and Budget the time after which none begins. Default:
	// no limit.
	Max    int
	Budget time.Duration
	// Seed changes the order of disturbances of one kind.
	Seed uint64
	// Parallel returns how many disturbances are tried at the same time. It is called after the
	// undisturbed runs.
	Parallel func() int

	// Parts are what may be left out to see whether a finding needs it, and Without returns how to
	// try the case without some of them. Default: nothing is left out.
	Parts   []Part
	Without func(ctx context.Context, out []bool) (Try, error)

	begin time.Time
}

// A Part is something that a user does in an act, or, if Act is 0, that there is from the start.
type Part struct {
	Name string
	Act  int
}

// Progress says how far an exploration is.
type Progress struct {
	Tried, Of, Findings int
	// Left is about how long the others will take.
	Left time.Duration
}

// UnknownError is of patterns that select no disturbance.
type UnknownError struct{ Pattern, Question string }

// Error implements error.
func (e *UnknownError) Error() string {
	text := fmt.Sprintf("there is no disturbance %q", e.Pattern)
	if e.Question != "" {
		text += ": " + e.Question
	}
	return text
}

// Run explores. With an error, such as that of an interrupt, it returns the report of what was
// tried, or nil if the error came before the first disturbance was to be tried.
func (e *Exploration) Run(ctx context.Context) (*Report, error) {
	e.begin = time.Now()
	baseline, all, err := e.plan(ctx)
	if err != nil {
		return nil, err
	}
	results, overBudget, err := e.tryAll(ctx, baseline, all)
	if e.Pairs && err == nil {
		var pairs []disturb.Disturbance
		if pairs, err = e.pairs(results); err == nil {
			var more []*Result
			var over bool
			more, over, err = e.tryAll(ctx, baseline, pairs)
			overBudget = overBudget || over
			all, results = append(all, pairs...), append(results, more...)
		}
	}
	report := newReport(all, results, time.Since(e.begin))
	report.OverBudget = overBudget
	report.Writes, report.Unserved = baseline.Writes(), baseline.Unserved()
	return report, err
}

// pairs returns the pairs to try that begin with disturbances which have been tried.
func (e *Exploration) pairs(results []*Result) (all []disturb.Disturbance, err error) {
	known := map[string]bool{}
	left := e.Max - len(results)
	for _, r := range results {
		if r == nil {
			continue
		}
		for _, d := range r.pairs {
			if !known[d.Name()] { // names leave out some of what there is of a write
				known[d.Name()] = true
				all = append(all, d)
			}
		}
	}
	if len(e.Names) > 0 {
		// Those that select no pair have selected other disturbances.
		patterns := slices.DeleteFunc(slices.Clone(e.Names), func(pattern string) bool {
			return !isOfPairs(pattern) && !slices.ContainsFunc(all, func(d disturb.Disturbance) bool {
				return selects(pattern, d)
			})
		})
		if len(patterns) == 0 {
			return nil, nil
		}
		if all, err = selected(all, patterns); err != nil {
			return nil, err
		}
	}
	if e.Max > 0 {
		all = all[:max(0, min(left, len(all)))]
	}
	return all, nil
}

// isOfPairs reports whether a pattern is for pairs only.
func isOfPairs(pattern string) bool {
	return pattern == disturb.PairName || strings.Contains(pattern, disturb.Then)
}

// List returns the names of the disturbances that Run would try, in their order. To know the pairs,
// it tries the others.
func (e *Exploration) List(ctx context.Context) ([]string, error) {
	e.begin = time.Now()
	baseline, all, err := e.plan(ctx)
	if e.Pairs && err == nil {
		var results []*Result
		if results, _, err = e.tryAll(ctx, baseline, all); err == nil {
			var pairs []disturb.Disturbance
			pairs, err = e.pairs(results)
			all = append(all, pairs...)
		}
	}
	var names []string
	for _, d := range all {
		names = append(names, d.Name())
	}
	return names, err
}

// maxLessons is how often the time to settle is made longer because the controller pauses for
// longer.
const maxLessons = 3

// plan runs the controller undisturbed, and returns the disturbances that follow from that.
func (e *Exploration) plan(ctx context.Context) (*disturb.Baseline, []disturb.Disturbance, error) {
	if err := e.Prepare(ctx); err != nil {
		return nil, nil, fmt.Errorf("prepare: %w", err)
	}
	baseline, err := undisturbed(ctx, e.Try)
	if err != nil {
		return nil, nil, err
	}
	patterns := e.Names
	if e.Pairs {
		patterns = firsts(patterns)
	}
	all, err := selected(baseline.Disturbances(e.Seed), patterns)
	if e.Only != nil {
		all = slices.DeleteFunc(all, func(d disturb.Disturbance) bool { return !e.Only(d) })
	}
	if e.Max > 0 && len(all) > e.Max {
		all = all[:e.Max]
	}
	return baseline, all, err
}

// undisturbed runs a case twice.
func undisturbed(ctx context.Context, try Try) (*disturb.Baseline, error) {
	var undisturbed [2]*disturb.Outcome
	var settle time.Duration
	for i, lessons := 0, 0; i < len(undisturbed); i++ {
		session := disturb.NewSession(disturb.Disturbance{})
		session.Settle = settle
		var err error
		undisturbed[i], err = try(ctx, session, nil)
		if tooShort := (*disturb.SettleError)(nil); errors.As(err, &tooShort) && lessons < maxLessons {
			settle, i = tooShort.Use, -1 // begin again
			lessons++
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("undisturbed: %w", err)
		}
		settle = undisturbed[i].Settle()
	}
	return disturb.NewBaseline(undisturbed[0], undisturbed[1])
}

// firsts returns the patterns of the disturbances that are to be tried first, for pairs.
func firsts(patterns []string) []string {
	var all []string
	for _, p := range patterns {
		if p == disturb.PairName {
			return nil // all of them
		}
		first, _, _ := strings.Cut(p, disturb.Then)
		all = append(all, first)
	}
	return all
}

// selects reports whether a pattern, which is not malformed, selects a disturbance.
func selects(pattern string, d disturb.Disturbance) bool {
	matches, _ := path.Match(pattern, d.Name())
	return matches || d.KindName() == pattern
}

// selected returns the disturbances that patterns select, or all if there are no patterns.
func selected(all []disturb.Disturbance, patterns []string) ([]disturb.Disturbance, error) {
	if len(patterns) == 0 {
		return all, nil
	}
	var names []string
	chosen := make([]bool, len(all))
	for _, d := range all {
		names = append(names, d.Name())
	}
	for _, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("%q: %w", pattern, err)
		}
		some := false
		for i, d := range all {
			if selects(pattern, d) {
				some, chosen[i] = true, true
			}
		}
		if !some && !slices.Contains(disturb.Kinds(), pattern) {
			return nil, &UnknownError{pattern, nearest.Ask(pattern, append(disturb.Kinds(), names...))}
		}
	}
	var some []disturb.Disturbance
	for i, d := range all {
		if chosen[i] {
			some = append(some, d)
		}
	}
	return some, nil
}

// tryAll returns the results of the disturbances, which are nil of those that were not tried, and
// whether the budget ran out.
func (e *Exploration) tryAll(
	ctx context.Context, baseline *disturb.Baseline, all []disturb.Disturbance,
) (results []*Result, overBudget bool, err error) {
	scope := e.Scope
	if scope == nil {
		scope = func(_ string, attempt func(Try) (*Result, error)) error {
			_, err := attempt(e.Try)
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results = make([]*Result, len(all))
	next := make(chan int)
	var mu sync.Mutex // guards p
	p := Progress{Of: len(all)}
	first := time.Now()
	var workers sync.WaitGroup
	for range e.Parallel() {
		workers.Go(func() {
			for i := range next {
				name := all[i].Name()
				err := scope(name, func(try Try) (*Result, error) {
					r, err := e.tryOne(ctx, try, all[i], baseline)
					if r == nil {
						return nil, err
					}
					mu.Lock()
					defer mu.Unlock()
					results[i] = r
					p.Tried++
					if r.Report != "" {
						p.Findings++
					}
					p.Left = time.Since(first) / time.Duration(p.Tried) * time.Duration(p.Of-p.Tried)
					if e.Progress != nil {
						e.Progress(r, p)
					}
					return r, err
				})
				if err != nil {
					cancel(fmt.Errorf("%s: %w", name, err))
				}
			}
		})
	}
	for i := range all {
		overBudget = e.overBudget()
		if ctx.Err() != nil || overBudget {
			break
		}
		next <- i
	}
	close(next)
	workers.Wait()
	return results, overBudget, context.Cause(ctx)
}

// overBudget reports whether the budget has run out.
func (e *Exploration) overBudget() bool {
	return e.Budget > 0 && time.Since(e.begin) > e.Budget
}

// tryOne tries a disturbance, and once more if that finds something. If the second try has an
// error, it returns both.
func (e *Exploration) tryOne(
	ctx context.Context, try Try, d disturb.Disturbance, baseline *disturb.Baseline,
) (*Result, error) {
	begin := time.Now()
	outcome, err := try(ctx, disturb.NewSession(d), baseline)
	if err != nil {
		return nil, err
	}
	r := newResult(d)
	r.Happened = outcome.Fired
	found := baseline.Judge(d, outcome)
	if found != nil {
		var second *disturb.Outcome
		again := disturb.NewSession(d)
		again.Detailed = true
		if second, err = try(ctx, again, baseline); err != nil {
			err = fmt.Errorf("second try: %w", err)
		} else {
			baseline.Learn(outcome, second)
			if found = baseline.Judge(d, outcome); found != nil {
				found.Compare(baseline.Judge(d, second))
			}
		}
	}
	if found != nil && found.Again == disturb.Same && e.Without != nil && err == nil {
		err = e.minimise(ctx, found)
	}
	if found != nil {
		r.Finding, r.Report = found, found.String()
	}
	if found == nil {
		r.pairs = baseline.Pairs(d, outcome)
	}
	r.Seconds = time.Since(begin).Seconds()
	return r, err
}
