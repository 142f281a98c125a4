package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mitchellh/go-wordwrap"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/term"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
	"github.com/kinproc/kinproc/server/cli/internal/settings"
	"github.com/kinproc/kinproc/server/internal/descriptors"
	"github.com/kinproc/kinproc/server/serverflags"
)

// The defaults for the sandbox of the working directory.
const (
	// defaultLoadBalancerRange is the first of the ranges for documentation of RFC 5737.
	defaultLoadBalancerRange = "192.0.2.0/24"
	defaultSecurePort        = 6443
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
	settled settings.Settled
}

func newStartCmd(s streams, args []string) *cobra.Command {
	o := &startOptions{server: server.Options{
		DataDir: sandbox.DefaultDir, SecurePort: defaultSecurePort, SimulatedNodes: 1,
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
start come before it, and flags of earlier starts after it. kinproc status shows the settings,
and so does the end of this help. ` + wrap("Not remembered are "+settings.Once()) + `

With --ephemeral, nothing is kept, and nothing is remembered:

  kinproc start --ephemeral --secure-port 0

With --detach, the control plane runs in the background until kinproc stop:

  kinproc start --detach`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.settle(cmd.Flags(), args); err != nil {
				return err
			}
			if err := o.dashboardOptions.check(o.settled.IsGiven, o.dashboard); err != nil {
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			if o.detach && !o.detached {
				return startDetached(cmd.Context(), s, "", args)
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
	addConfigFlag(f, &o.config)
	f.BoolVar(&o.forget, "forget", false,
		"forget the flags of earlier starts in the data directory, and remember only those of this one")
	addFromFlag(f, &o.from)
	f.StringVar(&o.name, "name", "", "name of this sandbox, used for its kubeconfig context "+
		"kinproc-NAME; the name of the directory if empty")
	f.StringVar(&o.kubeconfig, "kubeconfig", "",
		"additional kubeconfig in which to add the administrator's context and make it the current one")
	f.BoolVar(&o.timings, "timings", false, "print how long each phase of the start took")
	f.IntVarP(&o.verbosity, "v", "v", 0, "log level for standard error; 0 logs nothing")
	sections.FlagSet("dashboard").BoolVar(&o.dashboard, "dashboard", false,
		"serve a web page of the control plane on a loopback address, and print its link")
	o.addFlags(sections.FlagSet("dashboard"))
	serverflags.Add(&o.server, &sections)
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

// settle sets what the flags leave open. The flags without are no part of it.
func (o *startOptions) settle(flags *pflag.FlagSet, args []string, without ...string) (err error) {
	from := settings.Sources{
		DataDir: o.server.DataDir, Adopt: o.adopt, Forget: o.forget, Config: o.config,
		Check: checkSetting, Without: without,
	}
	if o.ephemeral {
		from.DataDir = ""
	}
	o.settled, err = settings.Settle(flags, args, from)
	if errors.As(err, new(settings.WrongError)) {
		return usageError{err}
	}
	if o.settled.File != nil {
		o.server.SimulatedNodeKinds = o.settled.File.Kinds
	}
	return err
}

// explain prints what is in force in the working directory and where it comes from.
func (o *startOptions) explain(w io.Writer, flags *pflag.FlagSet, args []string) {
	err := o.settle(flags, args)
	in := &o.settled
	switch {
	case err != nil:
		fmt.Fprintf(w, "\nThe settings of this directory cannot be determined: %s\n",
			output.Line(output.Plain(err)))
		return
	case len(in.InForce) == 0 && in.Memory.Port == 0 && len(o.server.SimulatedNodeKinds) == 0:
		fmt.Fprint(w, "\nSettings: defaults\n")
		return
	}
	fmt.Fprint(w, "\nSettings other than the defaults:\n\n")
	settings.Print(w, in.Describe(cmp.Or(o.name, sandbox.NameFor(o.server.DataDir)),
		cmp.Or(in.Memory.Port, o.server.SecurePort)))
}

// wrap breaks a list of flags into lines of the help.
func wrap(list string) string {
	return strings.TrimSpace(wordwrap.WrapString(list+".", 95))
}

func addConfigFlag(f *pflag.FlagSet, config *string) {
	f.StringVar(config, "config", "", "file to use instead of kinproc.yaml in the working "+
		"directory; none with --config=")
}

func addFromFlag(f *pflag.FlagSet, from *string) {
	f.StringVar(from, "from", "", "file with a snapshot to begin with, "+
		"written by kinproc snapshot save or etcdctl snapshot save; the data directory must be new")
}

// validate checks the flags, and clears the data directory of an ephemeral control plane.
func (o *startOptions) validate() error {
	if o.name != "" {
		if err := sandbox.CheckName(o.name); err != nil {
			return usageError{fmt.Errorf("--name: %w", err)}
		}
	}
	if o.ephemeral {
		o.server.DataDir = ""
	}
	if err := errors.Join(o.server.Validate()...); err != nil {
		return usageError{o.settled.Recall(err)}
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
			err = errors.Join(err, held.Release())
		}
	}()
	if err := o.checkKubeconfig(name, held); err != nil {
		return err
	}
	undo, err := o.claim()
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
	if o.server.DataDir != "" && !o.adopt {
		if err := o.settled.Memory.CheckKeys(o.server.DataDir); err != nil {
			return err
		}
	}
	o.warnShrinking(s.err)
	ctx, stop := untilInterrupted(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	background.Go(func() { returnMemory(ctx) })
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
			if held, err = sandbox.Hold(srv.Dir()); err != nil {
				return err
			}
		}
		if o.ephemeral {
			if err := held.Mark(); err != nil {
				return fmt.Errorf("mark %s: %w", held.Path, err)
			}
		}
		if !o.server.ReadOnly {
			if err := applyManifests(ctx, srv, &o.settled, s.err); err != nil {
				return err
			}
		}
		var page *openedDashboard
		if o.dashboard {
			config, err := srv.InProcessConfig(dashboardUser, "system:masters")
			if err != nil {
				return err
			}
			var renewing sync.Mutex // so that the last link stays
			page, err = o.open(config, func() {
				renewing.Lock()
				defer renewing.Unlock()
				held.SetDashboard(page.link())
			})
			if err != nil {
				return err
			}
			defer page.listener.Close() // if it does not come to be served
		}
		kubeconfig, remove, err := o.writeKubeconfigs(srv, sandbox.EntriesOf(name, held.Path))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, remove()) }()
		record := o.record(srv, name, kubeconfig, began)
		if page != nil {
			record.Dashboard = page.link()
		}
		if err := o.announce(held, record); err != nil {
			return err
		}
		ready = true
		defer func() { err = errors.Join(err, held.Retire()) }()
		release()
		fmt.Fprint(s.err, notice)
		o.printScreen(s.out, srv, time.Since(began), kubeconfig)
		if page != nil {
			fmt.Fprintf(s.out, "\nThe dashboard, with a link that works once:\n\n  %s\n", page.link())
			stop := page.background(ctx)
			defer func() { err = errors.Join(err, stop()) }()
		}
		if o.timings {
			printTimings(s.out, srv.Timeline())
		}
		if o.detached {
			line := fmt.Sprintf("%s %s is ready at %s\n", time.Now().Format(time.RFC3339), name, srv.URL())
			if err := logTo(filepath.Join(held.Path, sandbox.LogName), line); err != nil {
				return err
			}
		}
		return untilEnd(ctx, srv)
	})
}

// place returns the name of the sandbox and the folder in which other commands look for it. The
// folder is nil if it is the data directory, which the server has to check first.
func (o *startOptions) place(s streams) (name string, held *sandbox.Folder, err error) {
	if name = o.name; name == "" {
		name = sandbox.NameFor(cmp.Or(o.server.DataDir, "."))
	}
	if !o.ephemeral {
		return name, nil, o.refuseRunning()
	}
	held, numbered, err := sandbox.HoldEphemeral(name, o.settled.IsGiven("name"))
	switch {
	case err == nil:
		return numbered, held, nil
	case errors.As(err, new(sandbox.TakenError)):
		return "", nil, usageError{fmt.Errorf("--name: %w", err)}
	case !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS):
		fmt.Fprintf(s.err,
			"kinproc: warning: kinproc kubectl will not find this sandbox on its own: %s\n",
			output.Line(output.Joined(err)))
	}
	return name, nil, nil
}

// refuseRunning returns an error if another process runs a control plane in the data directory, and
// says how to reach that control plane. Other problems with the directory are left to the server.
func (o *startOptions) refuseRunning() error {
	r, err := sandbox.RecordIn(o.server.DataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %s is in use; %w", o.server.DataDir, err)
	}
	if r == nil {
		return nil
	}
	return fmt.Errorf("--data-dir: %s is in use by process %d, which serves %s; "+
		"end it with kinproc stop, or name another directory", o.server.DataDir, r.PID, r.URL)
}

// checkKubeconfig returns an error if the context cannot be added to the kubeconfig that
// --kubeconfig names, so that an unsuitable file is refused before the start.
func (o *startOptions) checkKubeconfig(name string, held *sandbox.Folder) (err error) {
	if o.kubeconfig == "" {
		return nil
	}
	directory := ""
	if held != nil {
		directory = held.Path
	} else if directory, err = filepath.Abs(o.server.DataDir); err != nil {
		return err
	}
	return sandbox.EntriesOf(name, directory).Check(o.kubeconfig)
}

// claim refuses a data directory with data or keys of somebody else. If the start fails before the
// control plane is ready, undo removes a new one.
func (o *startOptions) claim() (undo func(held *sandbox.Folder), err error) {
	if o.server.DataDir == "" {
		return func(*sandbox.Folder) {}, nil
	}
	return sandbox.Claim(o.server.DataDir, o.adopt)
}

// named is how many nodes to name in a message.
const named = 3

// warnShrinking says which simulated nodes of the last start will go.
func (o *startOptions) warnShrinking(w io.Writer) {
	if o.server.ReadOnly {
		return // then they stay
	}
	gone := o.settled.RemovedNodes()
	number := len(gone)
	if number == 0 {
		return
	}
	if number > named {
		gone = append(gone[:named], fmt.Sprintf("%d more", number-named))
	}
	list := strings.Join(gone, ", ")
	if i := strings.LastIndex(list, ", "); i >= 0 {
		list = list[:i] + " and " + list[i+2:]
	}
	verb := "are"
	if number == 1 {
		verb = "is"
	}
	fmt.Fprintf(w, "kinproc: there are fewer simulated nodes than before: %s %s deleted, with the "+
		"pods that are bound there; controllers replace theirs\n", list, verb)
}

// listen opens the port of a sandbox for which nobody has named one: the port that the sandbox has
// had, or else the default one. If that is in use, it takes any free port. A port that was named is
// left to the server, which says what is wrong with it. The notice says that the port is another
// one; it is for a start that has succeeded, since others keep nothing.
func (o *startOptions) listen() (l net.Listener, notice string, err error) {
	if _, named := o.settled.Lookup("secure-port"); named || o.server.SecurePort == 0 {
		return nil, "", nil
	}
	wanted := cmp.Or(o.settled.Memory.Port, o.server.SecurePort)
	l, err = sandbox.Listen(o.server.BindAddress, wanted)
	if err != nil {
		return nil, "", fmt.Errorf("--secure-port: find a free port: %w", err)
	}
	if l == nil {
		o.server.SecurePort = wanted
		return nil, "", nil
	}
	port := l.Addr().(*net.TCPAddr).Port
	if port == wanted {
		return l, "", nil
	}
	kept := ", and keeps it"
	if o.ephemeral {
		kept = ""
	}
	return l, fmt.Sprintf("kinproc: port %d is in use; this sandbox uses %d%s\n", wanted, port,
		kept), nil
}

// record returns how to reach a control plane that is ready.
func (o *startOptions) record(
	srv *server.Server, name, kubeconfig string, began time.Time,
) sandbox.Record {
	_, nodes := o.settled.Nodes()
	return sandbox.Record{
		Name:       name,
		PID:        os.Getpid(),
		URL:        srv.URL(),
		Kubeconfig: kubeconfig,
		Started:    began,
		Ephemeral:  o.ephemeral,
		Version:    server.Version(),
		Kubernetes: srv.Emulates(),
		Nodes:      nodes,
		Settings:   o.settled.Describe(name, sandbox.PortOf(srv.URL())),
	}
}

// announce remembers how the control plane was started, and lets other commands find it.
func (o *startOptions) announce(held *sandbox.Folder, r sandbox.Record) error {
	if !o.ephemeral {
		added := ""
		if o.kubeconfig != "" {
			added = r.Kubeconfig
		}
		err := o.settled.Remember(o.server.DataDir, sandbox.PortOf(r.URL), added, o.server.ReadOnly)
		if err != nil {
			return fmt.Errorf("remember the settings in %s: %w", o.server.DataDir, err)
		}
	}
	return held.Announce(r)
}

func (o *startOptions) warn(s streams) {
	for _, warning := range o.server.Warnings() {
		fmt.Fprintf(s.err, "kinproc: warning: %s\n", warning)
	}
}

// writeKubeconfigs writes the kubeconfig of the sandbox, and adds the context to the kubeconfig
// that --kubeconfig names. It returns the absolute path of the kubeconfig to use, and a function
// that removes what an ephemeral control plane must not leave behind.
func (o *startOptions) writeKubeconfigs(
	srv *server.Server, e sandbox.Entries,
) (path string, remove func() error, err error) {
	keep := func() error { return nil }
	path, err = e.Write(srv.Kubeconfig())
	if err != nil || o.kubeconfig == "" {
		return path, keep, err
	}
	if err := e.AddTo(o.kubeconfig, srv.Kubeconfig()); err != nil {
		return "", nil, err
	}
	remove = keep
	if o.ephemeral {
		remove = func() error { return e.RemoveFrom(o.kubeconfig) }
	}
	path, err = filepath.Abs(o.kubeconfig)
	return path, remove, err
}

func (o *startOptions) printScreen(
	w io.Writer, srv *server.Server, ready time.Duration, kubeconfig string,
) {
	kept := "nothing is kept"
	if o.server.DataDir != "" {
		kept = "everything is kept in " + output.Line(o.server.DataDir)
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
			endpoint, output.ForShell(ca), output.ForShell(cert), output.ForShell(key))
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
		output.SetKubeconfig(kubeconfig), etcd, srv.Kinds(), stop, kept)
	if kept := o.settled.NotOfThisStart(o.name); len(kept) > 0 {
		fmt.Fprint(w, "\nSettings other than the flags of this start and the defaults:\n\n")
		settings.Print(w, kept)
	}
}

func printTimings(w io.Writer, phases []server.Phase) {
	fmt.Fprintln(w)
	for _, p := range phases {
		fmt.Fprintf(w, "  %-24s %7.1f ms\n", p.Name, float64(p.Took.Microseconds())/1000)
	}
}
