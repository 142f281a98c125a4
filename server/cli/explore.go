package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/disturb"
	"github.com/kinproc/kinproc/server/internal/explorer"
	"github.com/kinproc/kinproc/server/internal/invariant"
	"github.com/kinproc/kinproc/server/internal/program"
)

// exploreOptions are the flags of kinproc explore.
type exploreOptions struct {
	prepare               []string
	act                   []string
	always                []string
	rules                 []*invariant.Rule // of always
	pairs, hold, minimise bool
	settle, patience      time.Duration
	leastSettle           time.Duration // see disturb.Case
	max, parallel         int
	networks              bool // whether each controller has a network of its own
	budget                time.Duration
	seed                  uint64
	only                  []string
	list                  bool
	output, junit, report string
	emit                  string
	logs                  string
	server                server.Options // some of them
	load                  load
}

func newExploreCmd(s streams) *cobra.Command {
	o := &exploreOptions{}
	cmd := &cobra.Command{
		Use:   "explore [flags] -- PROGRAM [ARGUMENT...]",
		Short: "Crash a controller at each of its writes, and see whether it recovers",
		Long: `Run a controller and a script with a user's steps, first undisturbed, and then with one
disturbance after the other: the controller is killed before or after one of its writes, loses an
answer, meets a conflict, starts with a cache that is behind, or sees events late or not at all.
Each run has a control plane of its own. A final state that differs is a finding.

  kinproc explore --prepare config/crd --act create.sh --act scale.sh -- ./manager

The controller and the scripts find the control plane by the environment variable KUBECONFIG. The
exit code is 1 if there are findings. An interrupt ends the exploration with a report of what was
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
			if !cmd.Flags().Changed("settle") {
				o.leastSettle = time.Second
			}
			return o.explore(ctx, s, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the program is the program's
	f.StringArrayVar(&o.prepare, "prepare", nil,
		"file or folder of manifests that exist before the controller starts; may be repeated")
	f.StringArrayVar(&o.act, "act", nil,
		"script with steps of a user; of several, each starts when the system is idle")
	f.StringArrayVar(&o.always, "always", nil,
		"what is to be true at each revision, in CEL, such as 'pods.size() <= 3' or, about "+
			"changes, 'claims: old == null || new != null'; may be repeated")
	f.BoolVar(&o.pairs, "pairs", false,
		"try a crash during the recovery from each disturbance that the controller survives, too")
	f.BoolVar(&o.minimise, "minimise", false,
		"leave out scripts and manifests, one after the other, as long as there is the same "+
			"finding, and say which of them it needs")
	f.BoolVar(&o.hold, "hold-while-waiting", false,
		"hold events back, and keep the controller away when it is to miss a change, until the "+
			"script ends, even if the script waits for something")
	f.DurationVar(&o.settle, "settle", 2*time.Second,
		"how long nothing must happen until the system counts as idle; without this flag, five times "+
			"the longest pause of the undisturbed runs, from 1s to 2s, for those that are disturbed")
	f.DurationVar(&o.patience, "patience", 30*time.Second,
		"how long the system may take to become idle in the right final state; a third of that, "+
			"if the controller sends no request")
	f.IntVar(&o.max, "max", 0, "maximum number of disturbances; 0 is all")
	f.DurationVar(&o.budget, "budget", 0, "time after which no disturbance starts; 0 is no limit")
	f.IntVar(&o.parallel, "parallel", 0, "number of controllers that run at the same time, each in a "+
		"network namespace of its own on Linux as root, where webhooks and stand-ins cannot be "+
		"reached; 0 is as many as keep the processors busy, and 1 without namespaces; 1 runs the "+
		"controller in the network of this machine")
	f.Uint64Var(&o.seed, "seed", 0, "another order of the disturbances of each kind")
	f.StringSliceVar(&o.only, "run", nil, "disturbances to try: names, patterns such as "+
		"'missed-*', and kinds such as stale-restart")
	f.BoolVar(&o.list, "list", false,
		"print the names of the disturbances and try none; with --pairs, those are tried that a "+
			"crash may follow")
	f.BoolVar(&o.server.PodBehaviors, "pod-behaviors", false, "as with kinproc start")
	f.StringSliceVar(&o.server.StandInPorts, "stand-in-ports", nil, "as with kinproc start")
	f.StringVarP(&o.output, "output", "o", "text",
		"format of the report: text, json, or github, whose workflows show each finding as an error")
	f.StringVar(&o.junit, "junit", "", "file for a report in JUnit's format")
	f.StringVar(&o.logs, "logs", "", "directory for a file with what the controller prints for each of "+
		"its lives")
	f.StringVar(&o.emit, "emit-test", "", "new file for a test in Go that repeats the findings, such as "+
		"findings_test.go")
	f.StringVar(&o.report, "html", "", "file for a report as a web page")
	return cmd
}

func (o *exploreOptions) validate() error {
	var errs []error
	if len(o.act) == 0 {
		errs = append(errs, errors.New("--act is required: without it, nothing happens"))
	}
	for _, path := range append(o.act, o.prepare...) {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, err)
		}
	}
	if o.settle <= 0 || o.patience <= o.settle {
		errs = append(errs, errors.New("--settle must be positive, and --patience longer"))
	}
	var err error
	if o.rules, err = invariant.ParseAll(o.always); err != nil {
		errs = append(errs, fmt.Errorf("--always: %w", err))
	}
	errs = append(errs, o.server.Validate()...)
	if o.max < 0 || o.budget < 0 {
		errs = append(errs, errors.New("--max and --budget must not be negative"))
	}
	if slices.Contains(o.only, disturb.PairName) && !o.pairs {
		errs = append(errs, errors.New("--run pair: without --pairs, there are none"))
	}
	if o.parallel < 0 {
		errs = append(errs, fmt.Errorf("--parallel %d: must not be negative", o.parallel))
	}
	if reportFormats[o.output] == nil {
		errs = append(errs, fmt.Errorf("--output %q: must be text, json or github", o.output))
	}
	errs = append(errs, o.checkEmit())
	for _, path := range []string{o.junit, o.report, o.emit} {
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return nil
}

// explore runs the program undisturbed and then disturbed, and reports what it finds.
func (o *exploreOptions) explore(ctx context.Context, s streams, args []string) error {
	if err := o.validate(); err != nil {
		return err
	}
	if _, err := exec.LookPath(args[0]); err != nil {
		return usageError{err}
	}
	setLogging(0)
	if o.logs != "" {
		if err := os.MkdirAll(o.logs, 0o700); err != nil {
			return err
		}
	}
	o.chooseNetworks(s)
	manifests, err := readManifests(o.prepare)
	if err != nil {
		return err
	}
	x := &exploring{exploreOptions: o, args: args}
	var from *server.Snapshot
	e := explorer.Exploration{
		Prepare: func(ctx context.Context) (err error) {
			fmt.Fprintln(s.err, "kinproc: two runs without a disturbance")
			from, err = x.prepared(ctx, manifests)
			return err
		},
		Try: func(ctx context.Context, session *disturb.Session, baseline *disturb.Baseline) (
			*disturb.Outcome, error,
		) {
			if baseline == nil {
				defer o.load.add(program.UsedProcessors())
			}
			return x.try(ctx, from, o.act, session, baseline)
		},
		Progress: func(r *explorer.Result, p explorer.Progress) {
			if r.Report != "" {
				fmt.Fprintf(s.err, "\n%s\n", r.Report)
			}
			left := ""
			if p.Tried < p.Of {
				left = fmt.Sprintf(", about %v left", p.Left.Round(time.Second))
			}
			fmt.Fprintf(s.err, "kinproc: %d of %d disturbances, %d findings%s\n", p.Tried, p.Of, p.Findings,
				left)
		},
		Names: o.only, Pairs: o.pairs, Max: o.max, Budget: o.budget, Seed: o.seed,
		Parallel: func() int { return cmp.Or(o.parallel, o.load.parallel(runtime.GOMAXPROCS(0))) },
	}
	if o.minimise {
		x.leaveOut(&e, manifests)
	}
	if o.list {
		names, err := e.List(ctx)
		for _, name := range names {
			fmt.Fprintln(s.out, name)
		}
		return asUsage(err)
	}
	r, err := e.Run(ctx)
	err = asUsage(err)
	if r == nil {
		return err
	}
	// What was found until an error or an interrupt is reported too.
	if err := errors.Join(o.write(s, r, args), err); err != nil {
		return err
	}
	if r.Findings > 0 {
		return exitError{exitFailed}
	}
	return nil
}

// newCase returns the program and the scripts, and what ends their network. The control plane is
// the one to which requests go that need a connection of their own.
func (o *exploreOptions) newCase(
	direct *rest.Config, session *disturb.Session, args, acts []string,
) (*disturb.Case, func(), error) {
	var network *program.Network
	if o.networks {
		var err error
		if network, err = program.NewNetwork(); err != nil {
			return nil, nil, err
		}
	}
	access := func(config *rest.Config) program.Access {
		return program.Access{Config: config, Upgrades: direct, Network: network}
	}
	var log func() (io.WriteCloser, error)
	if o.logs != "" {
		log = func() (io.WriteCloser, error) { return newLog(o.logs, session.Name()) }
	}
	return &disturb.Case{
		Controller: func(ctx context.Context, config *rest.Config) error {
			return program.RunController(ctx, access(config), args, log)
		},
		Act: func(ctx context.Context, config *rest.Config, waitIdle func()) error {
			return program.RunScripts(ctx, access(config), acts, waitIdle)
		},
		Always: o.rules, HoldWhileWaiting: o.hold,
		Settle: o.settle, LeastSettle: o.leastSettle, Patience: o.patience, Silence: o.patience / 3,
	}, network.Close, nil
}

// newLog makes a file for what a controller prints in one of its lives.
func newLog(dir, disturbance string) (io.WriteCloser, error) {
	const longest = 200 // with what follows, file systems allow 255
	disturbance = disturbance[:min(len(disturbance), longest)]
	for n := 1; ; n++ {
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%s.%d.log", disturbance, n)),
			os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// chooseNetworks decides whether each controller gets a network of its own. Without, one of them
// runs at a time unless the flag says otherwise.
func (o *exploreOptions) chooseNetworks(s streams) {
	if o.parallel == 1 || o.parallel == 0 && len(o.server.StandInPorts) > 0 {
		o.parallel = 1
		return
	}
	network, err := program.NewNetwork()
	network.Close()
	o.networks = err == nil
	switch {
	case err == nil:
	case o.parallel == 0:
		o.parallel = 1
	default:
		fmt.Fprintf(s.err, "kinproc: the controllers share the network of this machine, so they must not "+
			"need the same port: %v\n", err)
	}
}

// load is how long the undisturbed runs used the processors, and how long the processors were idle
// meanwhile.
type load struct{ running, idle time.Duration }

// add adds a run, which began when processors had done so much.
func (l *load) add(begin program.Processors) {
	end := program.UsedProcessors()
	l.running += end.Running - begin.Running
	l.idle += end.Idle - begin.Idle
}

// parallel returns how many runs keep processors busy. A run waits most of the time, but what
// others use meanwhile is not free. Some of the processors' time stays free, so that no run looks
// idle because it cannot run.
func (l *load) parallel(processors int) int {
	const share, most = 0.8, 8 // of each processor
	n := share * float64(l.running+l.idle) / float64(max(l.running, 1))
	return int(min(max(n, float64(processors)), float64(most*processors)))
}

// asUsage returns an error about --run or --always as one of usage.
func asUsage(err error) error {
	if wrong := (*invariant.Error)(nil); errors.As(err, &wrong) {
		return usageError{fmt.Errorf("--always: %w", wrong)}
	}
	if unknown := (*explorer.UnknownError)(nil); errors.As(err, &unknown) ||
		errors.Is(err, path.ErrBadPattern) {
		return usageError{fmt.Errorf("--run: %w", err)}
	}
	return err
}

// write writes the report to standard output, and to the files that the flags name.
func (o *exploreOptions) write(s streams, r *explorer.Report, args []string) error {
	if err := reportFormats[o.output](r, s.out); err != nil {
		return err
	}
	return errors.Join(writeReport(r, o.junit, junitReport), writeReport(r, o.report, htmlReport),
		o.emitTest(r, args))
}

// writeReport writes to a file, if it has a name.
func writeReport(
	r *explorer.Report, path string, write func(*explorer.Report, io.Writer) error,
) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(r, f), f.Close())
}
