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
	existing := clientcmdapi.NewConfig()
	if o.kubeconfig != "" {
		if existing, err = loadKubeconfig(o.kubeconfig); err != nil {
			return err
		}
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	o.server.Log = setLogging(o.verbosity)
	began := time.Now()
	srv, err := server.New(o.server)
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := srv.Start(starting); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted before it was ready")
		}
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		err = errors.Join(err, srv.Stop(ctx))
	}()
	path := o.kubeconfig
	if path == "" {
		path = filepath.Join(srv.Dir(), kubeconfigName)
	}
	if err := writeKubeconfig(path, existing, srv.Kubeconfig()); err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
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
