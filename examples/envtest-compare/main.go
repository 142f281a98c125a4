// Command envtest-compare measures the control plane of controller-runtime's envtest and that of
// kinproc by turns, and prints medians.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv("KUBEBUILDER_ASSETS"), os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "envtest-compare:", err)
		os.Exit(1)
	}
}

var errNoAssets = errors.New(
	"set KUBEBUILDER_ASSETS to a directory with kube-apiserver and etcd, " +
		"such as setup-envtest prints with: setup-envtest use -p path")

// run measures and prints. The assets are the directory with the programs that envtest runs.
func run(ctx context.Context, args []string, assets string, out io.Writer) error {
	flags := flag.NewFlagSet("envtest-compare", flag.ContinueOnError)
	rounds := flags.Int("rounds", 5, "how often each control plane is started")
	objects := flags.Int("objects", 1000, "how many objects are created and read in each round")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	case *rounds < 1 || *objects < 1:
		return errors.New("-rounds and -objects must be at least 1")
	case assets == "":
		return errNoAssets
	}
	subjects := []subject{
		{"envtest", envtestIn(assets)},
		{"kinproc", overTLS},
		{"kinproc, in process", inProcess},
	}
	results := make([][]times, len(subjects))
	for range *rounds {
		for i, s := range subjects {
			t, err := measure(ctx, s, *objects)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			results[i] = append(results[i], t)
		}
	}
	return report(out, subjects, results, *objects)
}

// report prints a table with a row for each step and a column for each subject.
func report(out io.Writer, subjects []subject, results [][]times, objects int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\t")
	for _, s := range subjects {
		fmt.Fprint(w, s.name, "\t")
	}
	fmt.Fprintln(w)
	row := func(name string, of func([]times) time.Duration) {
		fmt.Fprint(w, name, "\t")
		for _, all := range results {
			fmt.Fprintf(w, "%.1f ms\t", float64(of(all).Microseconds())/1000)
		}
		fmt.Fprintln(w)
	}
	row("first start", func(all []times) time.Duration { return all[0].start })
	row("start", medianOf(func(t times) time.Duration { return t.start }))
	row("first create", medianOf(func(t times) time.Duration { return t.first }))
	row(fmt.Sprint(objects, " creates"), medianOf(func(t times) time.Duration { return t.creates }))
	row(fmt.Sprint(objects, " gets"), medianOf(func(t times) time.Duration { return t.gets }))
	row("stop", medianOf(func(t times) time.Duration { return t.stop }))
	return w.Flush()
}

// medianOf returns a function that returns the median of one of the times.
func medianOf(one func(times) time.Duration) func([]times) time.Duration {
	return func(all []times) time.Duration {
		var values []time.Duration
		for _, t := range all {
			values = append(values, one(t))
		}
		slices.Sort(values)
		n := len(values)
		return (values[(n-1)/2] + values[n/2]) / 2
	}
}
