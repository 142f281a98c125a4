package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/disturb"
)

// exploreOptions are the flags of kinproc explore.
type exploreOptions struct {
	prepare               []string
	act                   []string
	settle, patience      time.Duration
	max, parallel         int
	budget                time.Duration
	seed                  uint64
	only                  string
	output, junit, report string
}

func newExploreCmd(s streams) *cobra.Command {
	o := &exploreOptions{}
	cmd := &cobra.Command{
		Use:   "explore [flags] -- PROGRAM [ARGUMENT...]",
		Short: "Crash a controller at each of its writes, and see whether it gets over it",
		Long: `Run a controller and a script that does what a user does, first undisturbed, and then with one
disturbance after the other: the controller is killed before or after one of its writes, loses an
answer, meets a conflict, starts with a cache that is behind, or sees events late or not at all.
Each run has a control plane of its own. Whatever ends differently is a finding.

  kinproc explore --prepare config/crd --act create.sh --act scale.sh -- ./manager

The controller and the scripts find the control plane by the environment variable KUBECONFIG. The
exit code is 1 if there are findings. An interrupt ends the search with a report of what was
tried.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("explore takes a program (see kinproc explore --help)")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := untilInterrupted(cmd.Context())
			defer cancel()
			return o.explore(ctx, s, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the program is the program's
	f.StringArrayVar(&o.prepare, "prepare", nil,
		"file or folder of manifests that exist before the controller starts; may be repeated")
	f.StringArrayVar(&o.act, "act", nil,
		"script that does what a user does; of several, each begins when the system is at rest")
	f.DurationVar(&o.settle, "settle", 2*time.Second,
		"how long nothing must happen until the system counts as being at rest")
	f.DurationVar(&o.patience, "patience", 30*time.Second,
		"how long the system may take to come to rest with the right end state")
	f.IntVar(&o.max, "max", 0, "number of disturbances at most; 0 is all")
	f.DurationVar(&o.budget, "budget", 0, "time after which no disturbance begins; 0 is no limit")
	f.IntVar(&o.parallel, "parallel", 1,
		"number of controllers that run at the same time, which must not need the same port")
	f.Uint64Var(&o.seed, "seed", 0, "another order of the disturbances of each kind")
	f.StringVar(&o.only, "run", "", "name of the only disturbance to try")
	f.StringVarP(&o.output, "output", "o", "text", "format of the report: text or json")
	f.StringVar(&o.junit, "junit", "", "file for a report in JUnit's format")
	f.StringVar(&o.report, "html", "", "file for a report as a web page")
	return cmd
}

func (o *exploreOptions) validate() error {
	var errs []error
	if len(o.act) == 0 {
		errs = append(errs, errors.New("--act is required: without it nothing happens"))
	}
	for _, path := range append(o.act, o.prepare...) {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, err)
		}
	}
	if o.settle <= 0 || o.patience <= o.settle {
		errs = append(errs, errors.New("--settle must be positive, and --patience longer"))
	}
	if o.parallel < 1 {
		errs = append(errs, fmt.Errorf("--parallel %d: must be at least 1", o.parallel))
	}
	if o.output != "text" && o.output != "json" {
		errs = append(errs, fmt.Errorf("--output %q: must be text or json", o.output))
	}
	if len(errs) > 0 {
		return usageError{errors.Join(errs...)}
	}
	return nil
}

// programCase is a case whose controller is a program.
type programCase struct {
	disturb.Case
	prepared *server.Snapshot
}

// explore runs the case undisturbed and then disturbed, and reports what it finds.
func (o *exploreOptions) explore(ctx context.Context, s streams, args []string) error {
	if err := o.validate(); err != nil {
		return err
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return usageError{err}
	}
	setLogging(0)
	c := &programCase{Case: disturb.Case{
		Controller: func(ctx context.Context, config *rest.Config) error {
			return runProgram(ctx, config, program, args)
		},
		Act: func(ctx context.Context, config *rest.Config, rest func()) error {
			return runScripts(ctx, config, o.act, rest)
		},
		Settle: o.settle, Patience: o.patience,
	}}
	begin := time.Now()
	fmt.Fprintln(s.err, "kinproc: two runs without a disturbance")
	lesson, err := c.learn(ctx, o.prepare)
	if err != nil {
		return err
	}
	all := lesson.Disturbances(o.seed)
	if o.only != "" {
		var some []disturb.Disturbance
		for _, d := range all {
			if d.Name() == o.only {
				some = append(some, d)
			}
		}
		if all = some; len(all) == 0 {
			return usageError{fmt.Errorf("--run %q: there is no such disturbance", o.only)}
		}
	}
	if o.max > 0 && len(all) > o.max {
		all = all[:o.max]
	}
	r, err := o.tryAll(ctx, s, c, lesson, all, begin)
	// What was found until an error or an interrupt is reported too.
	if err := errors.Join(r.write(s, o), err); err != nil {
		return err
	}
	if r.Findings > 0 {
		return exitError{exitFailed}
	}
	return nil
}

// tryAll tries the disturbances. The report has those that were tried before an error.
func (o *exploreOptions) tryAll(
	ctx context.Context, s streams, c *programCase, lesson *disturb.Lesson,
	all []disturb.Disturbance, begin time.Time,
) (*exploreReport, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make([]*exploreResult, len(all))
	next := make(chan int)
	var mu sync.Mutex // guards done and findings, and the lines
	done, findings := 0, 0
	var workers sync.WaitGroup
	for range o.parallel {
		workers.Go(func() {
			for i := range next {
				d, began := all[i], time.Now()
				try := func() (*disturb.Outcome, error) { return c.try(ctx, d, lesson) }
				outcome, err := try()
				if err != nil {
					cancel(fmt.Errorf("%s: %w", d.Name(), err))
					continue
				}
				found, err := lesson.Judge(d, outcome, try)
				if err != nil {
					cancel(fmt.Errorf("%s, second try: %w", d.Name(), err))
				}
				result := newExploreResult(d, outcome, found, time.Since(began))
				mu.Lock()
				results[i] = result
				done++
				if result.Report != "" {
					findings++
					fmt.Fprintf(s.err, "\n%s\n", result.Report)
				}
				fmt.Fprintf(s.err, "kinproc: %d of %d disturbances, %d findings\n", done, len(all), findings)
				mu.Unlock()
			}
		})
	}
	for i := range all {
		if ctx.Err() != nil || o.budget > 0 && time.Since(begin) > o.budget {
			break
		}
		next <- i
	}
	close(next)
	workers.Wait()
	return newExploreReport(results, time.Since(begin)), context.Cause(ctx)
}

// learn prepares the case, and runs it twice undisturbed.
func (c *programCase) learn(ctx context.Context, prepare []string) (*disturb.Lesson, error) {
	err := serve(ctx, c.options(nil), func(srv *server.Server) (err error) {
		if err := createAll(ctx, srv.RESTConfig(), prepare); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
		c.prepared, err = srv.Snapshot(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	var undisturbed [2]*disturb.Outcome
	for i := range undisturbed {
		if undisturbed[i], err = c.try(ctx, disturb.Disturbance{}, nil); err != nil {
			return nil, err
		}
	}
	return disturb.Learn(undisturbed[0], undisturbed[1])
}

// try runs the case once.
func (c *programCase) try(
	ctx context.Context, d disturb.Disturbance, lesson *disturb.Lesson,
) (outcome *disturb.Outcome, err error) {
	session := disturb.NewSession(d)
	err = serve(ctx, c.options(session), func(srv *server.Server) error {
		admin, err := srv.InProcessConfig("explore", "system:masters")
		if err != nil {
			return err
		}
		outcome, err = c.Run(ctx, session, admin, lesson)
		return err
	})
	if err == nil {
		err = context.Cause(ctx) // the outcome may be that of an interrupt
	}
	return outcome, err
}

// options returns the options of a control plane for the session, or for the one to prepare.
func (c *programCase) options(session *disturb.Session) server.Options {
	o := server.Options{Controllers: []string{"*"}, SimulatedNodes: 1, Log: logr.Discard()}
	if session != nil {
		o.From, o.AuditBackend = c.prepared, session
	}
	return o
}
