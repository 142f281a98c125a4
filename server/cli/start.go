package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/term"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

// The sandbox of the working directory.
const (
	defaultDataDir    = ".kinproc"
	defaultSecurePort = 6443
	kubeconfigName    = "kubeconfig"
)

const (
	// startTimeout is when to give up and say what is not ready.
	startTimeout = time.Minute
	// stopTimeout bounds a clean end.
	stopTimeout = 10 * time.Second
	// brokenStopTimeout bounds the end after a failure.
	brokenStopTimeout = 5 * time.Second
	// startGrace is how long an interrupted start may take to end. A start that is left behind
	// leaves what a crash leaves, which the next start can handle.
	startGrace = 2 * time.Second
)

type startOptions struct {
	server     server.Options
	ephemeral  bool
	kubeconfig string
	timings    bool
	verbosity  int
}

func newStartCmd(s streams) *cobra.Command {
	o := &startOptions{server: server.Options{DataDir: defaultDataDir, SecurePort: defaultSecurePort}}
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start a control plane and run it until interrupted",
		Long: `Start a control plane and run it until interrupted.

Data, keys and a kubeconfig are kept in .kinproc in the working directory, and the next start there serves the same objects:

  kinproc start

Nothing is kept with --ephemeral:

  kinproc start --ephemeral --secure-port 0`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), s) },
	}
	var sections cliflag.NamedFlagSets
	f := sections.FlagSet("start")
	f.BoolVar(&o.ephemeral, "ephemeral", false, "keep nothing: data and keys live in a temporary directory, and writes do not wait for the disk")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig to add the administrator's context to, and make it the current one; in the data directory if empty")
	f.BoolVar(&o.timings, "timings", false, "print what each phase of the start took")
	f.IntVarP(&o.verbosity, "v", "v", 0, "how much to log to standard error; 0 is nothing")
	o.server.AddFlags(&sections)
	for _, set := range sections.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	width, _, _ := term.TerminalSize(s.out)
	cliflag.SetUsageAndHelpFunc(cmd, sections, width)
	return cmd
}

func (o *startOptions) run(ctx context.Context, s streams) (err error) {
	if o.ephemeral {
		o.server.DataDir = ""
	}
	if err := errors.Join(o.server.Validate()...); err != nil {
		return usageError{err}
	}
	for _, warning := range o.server.Warnings() {
		fmt.Fprintf(s.err, "kinproc: warning: %s\n", warning)
	}
	if o.kubeconfig != "" {
		// Before the start, so that a file that cannot be added to is refused at once.
		if _, err := loadKubeconfig(o.kubeconfig); err != nil {
			return err
		}
	}
	o.server.Log = setLogging(o.verbosity)
	began := time.Now()
	srv, err := server.New(o.server)
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	if err := startUntilReady(ctx, srv); err != nil {
		return err
	}
	defer func() {
		if stopErr := stopServer(ctx, srv); srv.Err() == nil { // else it only follows from the failure
			err = errors.Join(err, stopErr)
		}
	}()
	path, err := o.writeKubeconfig(srv)
	if err != nil {
		return err
	}
	o.printScreen(s.out, srv, time.Since(began), path)
	if o.timings {
		printTimings(s.out, srv.Timeline())
	}
	// At first nothing of the start goes on any more; by the second time a program that has just been built is on the disk.
	settling := []time.Duration{time.Second, 3 * time.Second}
	for {
		var due <-chan time.Time
		if len(settling) > 0 {
			due = time.After(settling[0])
		}
		select {
		case <-due:
			settle()
			settling = settling[1:]
		case <-ctx.Done():
			return nil
		case <-srv.Failed():
			return srv.Err()
		}
	}
}

// stopServer ends the server. What is broken is waited for less long, and until ctx ends at most, which is Ctrl-C.
func stopServer(ctx context.Context, srv *server.Server) error {
	timeout := brokenStopTimeout
	if srv.Err() == nil {
		ctx, timeout = context.WithoutCancel(ctx), stopTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return srv.Stop(ctx)
}

// startUntilReady starts the control plane. It does not wait long for an interrupted start that
// hangs, say in a named pipe that a flag names or on a disk that does not answer: the program ends,
// and the goroutine with it.
func startUntilReady(ctx context.Context, srv *server.Server) error {
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- srv.Start(starting) }()
	var err error
	select {
	case err = <-started:
	case <-ctx.Done():
		select {
		case err = <-started:
		case <-time.After(startGrace):
			return errors.New("interrupted while the start hung; is a file that it reads a named pipe, or on a disk that does not answer?")
		}
	}
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted before it was ready")
	}
	return err
}

// writeKubeconfig returns the absolute path of the kubeconfig. The one in the data directory holds nothing else.
func (o *startOptions) writeKubeconfig(srv *server.Server) (path string, err error) {
	if path = o.kubeconfig; path != "" {
		err = addToKubeconfig(path, srv.Kubeconfig())
	} else {
		path = filepath.Join(srv.Dir(), kubeconfigName)
		config := clientcmdapi.NewConfig()
		addEntries(config, srv.Kubeconfig())
		err = pki.WriteKubeconfig(path, config)
	}
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

func (o *startOptions) printScreen(w io.Writer, srv *server.Server, ready time.Duration, kubeconfig string) {
	kept := "nothing is kept"
	if o.server.DataDir != "" {
		kept = "everything is kept in " + o.server.DataDir
	}
	fmt.Fprintf(w, `kinproc %s, Kubernetes %s, ready in %d ms

  %s
  %s

  client → aggregator → core (%d kinds) → extensions → 404

Ctrl-C stops it; %s.
`, server.Version(), server.KubernetesVersion, ready.Milliseconds(), srv.URL(), setKubeconfig(kubeconfig), srv.Kinds(), kept)
}

// setKubeconfig is the line that makes kubectl use a kubeconfig, for the shell that is usual here.
func setKubeconfig(path string) string {
	if runtime.GOOS == "windows" {
		return fmt.Sprintf("$env:KUBECONFIG = '%s'", strings.ReplaceAll(path, "'", "''"))
	}
	if strings.ContainsFunc(path, func(r rune) bool { return !unicode.In(r, unicode.L, unicode.N) && !strings.ContainsRune("/._-+:@", r) }) {
		path = "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return "export KUBECONFIG=" + path
}

func printTimings(w io.Writer, phases []server.Phase) {
	fmt.Fprintln(w)
	for _, p := range phases {
		fmt.Fprintf(w, "  %-24s %7.1f ms\n", p.Name, float64(p.Took.Microseconds())/1000)
	}
}
