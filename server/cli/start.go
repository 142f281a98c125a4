package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/term"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/settings"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
	"github.com/kinproc/kinproc/server/internal/descriptors"
)

// The defaults for the sandbox of the working directory.
const (
	defaultDataDir = ".kinproc"
	// defaultLoadBalancerRange is the first of the ranges for documentation of RFC 5737.
	defaultLoadBalancerRange = "192.0.2.0/24"
	defaultSecurePort        = 6443
	kubeconfigName           = "kubeconfig"
)

const (
	// startTimeout is how long to wait for the server to become ready. The error says what is not
	// ready.
	startTimeout = time.Minute
	// stopTimeout bounds a clean stop.
	stopTimeout = 10 * time.Second
	// brokenStopTimeout bounds the stop after a failure.
	brokenStopTimeout = 5 * time.Second
	// startGrace is how long to wait for an interrupted start to end. A start that is abandoned
	// after that leaves what a crash would leave, and the next start can deal with it.
	startGrace = 2 * time.Second
	// progressAfter is after how long a start says what it is doing, and progressInterval how often
	// it says so from then on.
	progressAfter    = time.Second
	progressInterval = 10 * time.Second
)

type startOptions struct {
	server     server.Options
	name       string
	ephemeral  bool
	adopt      bool   // use a data directory that somebody else made
	forget     bool   // do without what the data directory remembers
	config     string // the file to use instead of kinproc.yaml
	from       string // a file with a snapshot
	kubeconfig string
	timings    bool
	verbosity  int
	faults     []string // of exec, each in words
	detach     bool
	detached   bool // this is the process that --detach started
	dashboard  bool
	dashboardOptions
	settled
}

func newStartCmd(s streams, args []string) *cobra.Command {
	o := &startOptions{server: server.Options{
		DataDir: defaultDataDir, SecurePort: defaultSecurePort, SimulatedNodes: 1,
		SimulatedMetrics: true, LoadBalancerRange: defaultLoadBalancerRange,
	}}
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start a control plane and run it until interrupted",
		Long: `Start a control plane and run it until interrupted.

Data, keys and a kubeconfig are kept in .kinproc in the working directory, and the next start there
is the same cluster again: it serves the same objects at the same port, and uses the flags of
earlier starts. A flag that is given again changes; --forget does without them. The port is 6443 if
that is free at the first start, otherwise the next free one.

  kinproc start --simulate-nodes=3
  kinproc start

A file kinproc.yaml in the working directory can describe the cluster: nodes, kinds of nodes,
control loops, feature gates, admission plugins, and manifests for the first start. Flags of this
start come before it, and flags of earlier starts after it. kinproc status shows what is in force,
and so does the end of this help. ` + wrap("Not remembered are "+settings.Once()) + `

With --ephemeral, nothing is kept, and nothing is remembered:

  kinproc start --ephemeral --secure-port 0

With --detach, the control plane runs in the background until kinproc stop:

  kinproc start --detach`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkDashboard(cmd.Flags()); err != nil {
				return err
			}
			if err := o.settle(cmd.Flags(), args); err != nil {
				return err
			}
			if o.detach && !o.detached {
				return o.startDetached(cmd.Context(), s, args)
			}
			return o.run(cmd.Context(), s)
		},
	}
	var sections cliflag.NamedFlagSets
	f := sections.FlagSet("start")
	f.BoolVar(&o.detach, "detach", false, "return when the control plane is ready, "+
		"and leave it running in the background until kinproc stop")
	f.BoolVar(&o.detached, "detached", false, "")
	_ = f.MarkHidden("detached") // the flag exists
	f.BoolVar(&o.ephemeral, "ephemeral", false,
		"keep nothing: data and keys live in a temporary directory, and writes do not wait for the disk")
	f.BoolVar(&o.adopt, "adopt", false, "use a data directory that was not made by this user on this "+
		"machine, with the objects and keys of whoever made it")
	f.StringVar(&o.config, "config", "", "file to use in the place of kinproc.yaml in the working "+
		"directory; none with --config=")
	f.BoolVar(&o.forget, "forget", false,
		"forget the flags of earlier starts in the data directory, and remember only those of this one")
	o.addFromFlag(f)
	f.StringVar(&o.name, "name", "", "name of this sandbox, used for its kubeconfig context "+
		"kinproc-NAME; the name of the directory if empty")
	f.StringVar(&o.kubeconfig, "kubeconfig", "",
		"additional kubeconfig in which to add the administrator's context and make it the current one")
	f.BoolVar(&o.timings, "timings", false, "print how long each phase of the start took")
	f.IntVarP(&o.verbosity, "v", "v", 0, "how much to log to standard error; 0 is nothing")
	sections.FlagSet("dashboard").BoolVar(&o.dashboard, "dashboard", false,
		"serve a web page of the control plane on a loopback address, and print its link")
	o.addFlags(sections.FlagSet("dashboard"))
	o.server.AddFlags(&sections)
	for _, set := range sections.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	completeStartFlags(cmd)
	width, _, _ := term.TerminalSize(s.out)
	cliflag.SetUsageAndHelpFunc(cmd, sections, width)
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, of []string) {
		help(cmd, of)
		o.explain(s.out, cmd.Flags(), args)
	})
	return cmd
}

// validate checks the flags, and clears the data directory of an ephemeral control plane.
func (o *startOptions) validate() error {
	if o.name != "" {
		if err := checkName(o.name); err != nil {
			return err
		}
	}
	if o.ephemeral {
		o.server.DataDir = ""
	}
	if err := errors.Join(o.server.Validate()...); err != nil {
		return usageError{o.recall(err)}
	}
	if o.from == "" {
		return nil
	}
	var err error
	if o.server.From, err = readSnapshot(o.from); err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	if err := errors.Join(o.server.Validate()...); err != nil {
		return usageError{err}
	}
	return nil
}

func (o *startOptions) run(ctx context.Context, s streams) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	o.warn(s)
	defer runtime.KeepAlive(newHeadroom())
	began := time.Now()
	release, err := descriptors.Reserve()
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer release()
	name, held, err := o.place(s)
	if err != nil {
		return err
	}
	defer func() {
		release()
		if held != nil {
			err = errors.Join(err, held.release())
		}
	}()
	if err := o.checkKubeconfig(name, held); err != nil {
		return err
	}
	undo, err := o.checkOrigin()
	if err != nil {
		return err
	}
	ready := false
	defer func() {
		if !ready {
			release()
			undo(held)
		}
	}()
	if err := o.checkKeys(); err != nil {
		return err
	}
	o.warnShrinking(s.err)
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	o.server.Log = setLogging(o.verbosity)
	var notice string
	if o.server.Listener, notice, err = o.listen(); err != nil {
		return err
	}
	if o.server.Listener != nil {
		defer o.server.Listener.Close() // in case that the server did not come to use it
	}
	return serveAndTell(ctx, o.server, s.err, func(srv *server.Server) (err error) {
		defer release()
		if held == nil {
			if held, err = holdFolder(srv.Dir()); err != nil {
				return err
			}
		}
		if o.ephemeral {
			if err := markFolder(held.path); err != nil {
				return fmt.Errorf("mark %s: %w", held.path, err)
			}
		}
		if err := o.applyManifests(ctx, srv, s.err); err != nil {
			return err
		}
		a := &announcement{folder: held}
		if a.page, err = o.openDashboard(srv, a.renew); err != nil {
			return err
		}
		if a.page != nil {
			defer a.page.listener.Close() // if it does not come to be served
		}
		kubeconfig, remove, err := o.writeKubeconfigs(srv, entriesOf(name, held.path))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, remove()) }()
		a.record = o.record(srv, name, kubeconfig, began)
		if err := o.settleDown(srv, a); err != nil {
			return err
		}
		ready = true
		defer func() { err = errors.Join(err, a.retire()) }()
		release()
		fmt.Fprint(s.err, notice)
		o.printScreen(s.out, srv, time.Since(began), kubeconfig)
		if a.page != nil {
			fmt.Fprintf(s.out, "\nThe dashboard, with a link that works once:\n\n  %s\n", a.page.link())
			stop := a.page.background(ctx)
			defer func() { err = errors.Join(err, stop()) }()
		}
		if o.timings {
			printTimings(s.out, srv.Timeline())
		}
		if o.detached {
			line := fmt.Sprintf("%s %s is ready at %s\n", time.Now().Format(time.RFC3339), name, srv.URL())
			if err := logTo(filepath.Join(held.path, logName), line); err != nil {
				return err
			}
		}
		return untilEnd(ctx, srv)
	})
}

// record returns how to reach a control plane that is ready.
func (o *startOptions) record(
	srv *server.Server, name, kubeconfig string, began time.Time,
) record {
	_, nodes := o.nodes()
	return record{
		Name:       name,
		PID:        os.Getpid(),
		URL:        srv.URL(),
		Kubeconfig: kubeconfig,
		Started:    began,
		Ephemeral:  o.ephemeral,
		Version:    server.Version(),
		Kubernetes: srv.Emulates(),
		Nodes:      nodes,
		Settings:   o.describe(name, portOf(strings.TrimPrefix(srv.URL(), "https://"))),
	}
}

// settleDown remembers how the control plane was started, and lets other commands find it.
func (o *startOptions) settleDown(srv *server.Server, a *announcement) error {
	added := ""
	if o.kubeconfig != "" {
		added = a.record.Kubeconfig
	}
	if err := o.remember(portOf(strings.TrimPrefix(srv.URL(), "https://")), added); err != nil {
		return fmt.Errorf("remember the settings in %s: %w", o.server.DataDir, err)
	}
	if a.page != nil {
		a.record.Dashboard = a.page.link()
	}
	if err := a.folder.announce(a.record); err != nil {
		return err
	}
	defer sweepRegistry()
	return register(a.registered())
}

func (o *startOptions) warn(s streams) {
	for _, warning := range o.server.Warnings() {
		fmt.Fprintf(s.err, "kinproc: warning: %s\n", warning)
	}
}

var errInterrupted = errors.New("interrupted before it was ready")

// serve starts a control plane, calls use when it is ready, and stops it when use has returned. If
// ctx ends, the start is interrupted; use has to look at ctx itself.
func serve(ctx context.Context, o server.Options, use func(*server.Server) error) (err error) {
	return serveAndTell(ctx, o, io.Discard, use)
}

// serveAndTell is like serve, and says what a start that takes long is doing.
func serveAndTell(
	ctx context.Context, o server.Options, w io.Writer, use func(*server.Server) error,
) (err error) {
	srv, err := server.New(o)
	if err != nil {
		return err
	}
	if err := startUntilReady(ctx, srv, w); err != nil {
		return err
	}
	defer func() {
		// After a failure, the error of the stop only follows from it.
		if stopErr := stopServer(ctx, srv); srv.Err() == nil {
			err = errors.Join(err, stopErr)
		}
	}()
	return use(srv)
}

// untilEnd returns nil when the context ends, and an error if the control plane fails.
func untilEnd(ctx context.Context, srv *server.Server) error {
	select {
	case <-ctx.Done():
		return nil
	case <-srv.Failed():
		return srv.Err()
	}
}

// place returns the name of the sandbox and the folder in which other commands look for it. The
// folder is nil if it is the data directory, which the server has to check first.
func (o *startOptions) place(s streams) (name string, held *folder, err error) {
	if name = o.name; name == "" {
		name = nameFor(cmp.Or(o.server.DataDir, "."))
	}
	if !o.ephemeral {
		return name, nil, o.refuseRunning()
	}
	held, numbered, err := holdEphemeral(defaultDataDir, name, len(o.given["name"]) > 0)
	switch {
	case err == nil:
		return numbered, held, nil
	case errors.As(err, new(usageError)):
		return "", nil, err
	case !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS):
		fmt.Fprintf(s.err,
			"kinproc: warning: kinproc kubectl will not find this sandbox on its own: %s\n",
			oneLineOf(oneLine(err)))
	}
	return name, nil, nil
}

// checkKubeconfig returns an error if the context cannot be added to the kubeconfig that
// --kubeconfig names, so that an unsuitable file is refused before the start.
func (o *startOptions) checkKubeconfig(name string, held *folder) error {
	if o.kubeconfig == "" {
		return nil
	}
	config, err := loadKubeconfig(o.kubeconfig)
	if err != nil {
		return err
	}
	directory := ""
	if held != nil {
		directory = held.path
	} else if directory, err = filepath.Abs(o.server.DataDir); err != nil {
		return err
	}
	return entriesOf(name, directory).check(o.kubeconfig, config)
}

// refuseRunning returns an error if another process runs a control plane in the data directory, and
// says how to reach that control plane. Other problems with the directory are left to the server.
func (o *startOptions) refuseRunning() error {
	if runs, _ := running(o.server.DataDir); !runs {
		return nil
	}
	private, err := openPrivate(o.server.DataDir, os.Geteuid())
	if err != nil {
		return nil // the server says more about it
	}
	defer private.close()
	r, err := readRunning(private, ".")
	if err != nil {
		return fmt.Errorf("--data-dir: %s is in use; %w", o.server.DataDir, err)
	}
	if r == nil {
		return nil // it is not ready yet
	}
	return fmt.Errorf("--data-dir: %s is in use by process %d, which serves %s; "+
		"end it with kinproc stop, or name another directory", o.server.DataDir, r.PID, r.URL)
}

// stopServer stops the server. After a failure it waits for a shorter time, and no longer than
// until ctx ends, which Ctrl-C does.
func stopServer(ctx context.Context, srv *server.Server) error {
	timeout := brokenStopTimeout
	if srv.Err() == nil {
		ctx, timeout = context.WithoutCancel(ctx), stopTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return srv.Stop(ctx)
}

// startUntilReady starts the control plane. If the start is interrupted but hangs, for example on a
// named pipe given in a flag or on a disk that does not respond, it does not wait long: the program
// ends, and the goroutine with it.
func startUntilReady(ctx context.Context, srv *server.Server, w io.Writer) error {
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- srv.Start(starting) }()
	began, patience := time.Now(), time.NewTimer(progressAfter)
	defer patience.Stop()
	var err error
	for waiting := true; waiting; {
		select {
		case err = <-started:
			waiting = false
		case <-patience.C:
			printProgress(w, srv, time.Since(began))
			patience.Reset(progressInterval)
		case <-ctx.Done():
			select {
			case err = <-started:
				waiting = false
			case <-time.After(startGrace):
				return errors.New("interrupted while the start hung; check whether a file that it reads is " +
					"a named pipe, or is on a disk that does not respond")
			}
		}
	}
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// printProgress says what a start is doing that takes long.
func printProgress(w io.Writer, srv *server.Server, waited time.Duration) {
	fmt.Fprintf(w, "kinproc: still starting after %s, in the phase %q\n", waited.Round(time.Second),
		srv.Starting())
}

// writeKubeconfigs writes the kubeconfig of the sandbox, and adds the context to the kubeconfig
// that --kubeconfig names. It returns the absolute path of the kubeconfig to use, and a function
// that removes what an ephemeral control plane must not leave behind.
func (o *startOptions) writeKubeconfigs(
	srv *server.Server, e entries,
) (path string, remove func() error, err error) {
	path = filepath.Join(e.directory, kubeconfigName)
	config := clientcmdapi.NewConfig()
	e.add(config, srv.Kubeconfig())
	if err := e.sign(config); err != nil {
		return "", nil, err
	}
	if err := pki.WriteKubeconfig(path, config); err != nil {
		return "", nil, err
	}
	keep := func() error { return nil }
	if o.kubeconfig == "" {
		return path, keep, nil
	}
	if remove, err = e.addToFile(o.kubeconfig, srv.Kubeconfig()); err != nil {
		return "", nil, err
	}
	if !o.ephemeral {
		remove = keep
	}
	path, err = filepath.Abs(o.kubeconfig)
	return path, remove, err
}

func (o *startOptions) printScreen(
	w io.Writer, srv *server.Server, ready time.Duration, kubeconfig string,
) {
	kept := "nothing is kept"
	if o.server.DataDir != "" {
		kept = "everything is kept in " + oneLineOf(o.server.DataDir)
	}
	stop := "Ctrl-C"
	if o.detached {
		stop = "kinproc stop"
	}
	etcd := ""
	for _, endpoint := range srv.EtcdEndpoints() {
		ca, cert, key := srv.EtcdClientFiles()
		etcd = fmt.Sprintf(
			"\n  --etcd-servers=%s --etcd-cafile=%s \\\n  --etcd-certfile=%s --etcd-keyfile=%s",
			endpoint, forShell(ca), forShell(cert), forShell(key))
	}
	kubernetes := server.KubernetesVersion
	if version := srv.Emulates(); !strings.HasPrefix(kubernetes, "v"+version+".") {
		kubernetes += " as " + version
	}
	fmt.Fprintf(w, `kinproc %s, Kubernetes %s, ready in %d ms

  %s
  %s%s

  client → aggregator → core (%d kinds) → extensions → 404

%s stops it; %s.
`, server.Version(), kubernetes, ready.Milliseconds(), srv.URL(),
		setKubeconfig(kubeconfig), etcd, srv.Kinds(), stop, kept)
	if kept := o.notOfThisStart(); len(kept) > 0 {
		fmt.Fprint(w, "\nBesides the flags of this start and the defaults:\n\n")
		printSettings(w, kept)
	}
}

// setKubeconfig returns the command that makes kubectl use a kubeconfig, for this platform's usual
// shell.
func setKubeconfig(path string) string {
	if runtime.GOOS == "windows" {
		return "$env:KUBECONFIG = " + forShell(path)
	}
	return "export KUBECONFIG=" + forShell(path)
}

// forShell quotes a path for this platform's usual shell, if it needs that.
func forShell(path string) string {
	if runtime.GOOS == "windows" {
		return "'" + strings.ReplaceAll(path, "'", "''") + "'"
	}
	if oneLineOf(path) != path { // then the quotes of bash, zsh and ksh
		return "$'" + inOctal(path) + "'"
	}
	if strings.ContainsFunc(path, func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.N) && !strings.ContainsRune("/._-+:@", r)
	}) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

// inOctal writes all but plain characters as \NNN, which the quotes of forShell understand.
func inOctal(text string) string {
	var quoted strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '\'' || c == '\\' {
			fmt.Fprintf(&quoted, "\\%03o", c)
		} else {
			quoted.WriteByte(c)
		}
	}
	return quoted.String()
}

func printTimings(w io.Writer, phases []server.Phase) {
	fmt.Fprintln(w)
	for _, p := range phases {
		fmt.Fprintf(w, "  %-24s %7.1f ms\n", p.Name, float64(p.Took.Microseconds())/1000)
	}
}
