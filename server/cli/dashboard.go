package cli

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
	"github.com/kinproc/kinproc/server/internal/dashboard"
)

// dashboardUser is the user of the dashboard of kinproc start. It is a member of system:masters.
const dashboardUser = "kinproc-dashboard"

// dashboardOptions are what kinproc start --dashboard and kinproc dashboard have in common.
type dashboardOptions struct {
	writes  bool
	address string
}

func (o *dashboardOptions) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.writes, "dashboard-writes", false,
		"let the dashboard send requests that change something; it is read-only otherwise")
	f.StringVar(&o.address, "dashboard-address", "127.0.0.1:0",
		"loopback address and port of the dashboard; with port 0, the system chooses the port")
}

// validate returns a usageError if the flags are wrong.
func (o *dashboardOptions) validate() error {
	if err := dashboard.CheckAddress(o.address); err != nil {
		return usageError{fmt.Errorf("--dashboard-address: %w", err)}
	}
	return nil
}

// openedDashboard is a dashboard with its listener.
type openedDashboard struct {
	*dashboard.Server
	listener net.Listener
}

// open listens for the dashboard of a control plane. The caller has to serve or to close it.
// If renewed is not nil, it is called when the link has been used and there is a new one.
func (o *dashboardOptions) open(config *rest.Config, renewed func()) (*openedDashboard, error) {
	d, err := dashboard.New(config, dashboard.Options{Writes: o.writes, Renewed: renewed})
	if err != nil {
		return nil, err
	}
	listener, err := dashboard.Listen(o.address)
	if err != nil {
		return nil, fmt.Errorf("--dashboard-address: %w", err)
	}
	return &openedDashboard{d, listener}, nil
}

func (d *openedDashboard) link() string { return d.Link(d.listener) }

// background serves the dashboard until stop is called, which waits for the end.
func (d *openedDashboard) background(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, d.listener) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// check returns a usageError if the flags are wrong, or if some are given that have no effect since
// no dashboard is asked for.
func (o *dashboardOptions) check(given func(flag string) bool, asked bool) error {
	for _, name := range []string{"dashboard-writes", "dashboard-address"} {
		if given(name) && !asked {
			return usageError{fmt.Errorf("--%s has no effect without --dashboard", name)}
		}
	}
	return o.validate()
}

func newDashboardCmd(s streams) *cobra.Command {
	var o dashboardOptions
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Serve a web page of a running control plane until interrupted",
		Long: `Serve a web page of a running control plane until interrupted: the chain with the
requests that pass through it, its inventory and its objects, and a form to try requests.

  kinproc start --detach
  kinproc dashboard

The command prints a link for the browser, which works once. The page is for this machine only, and
read-only unless --dashboard-writes is set. It shows nothing of the data of Secrets.`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			config, err := sandbox.ClientConfig(kubeconfig)
			if err != nil {
				return err
			}
			d, err := o.open(config, nil)
			if err != nil {
				return err
			}
			ctx, stop := untilInterrupted(cmd.Context())
			defer stop()
			_, err = fmt.Fprintf(s.out, "%s\n\nThe link works once. Ctrl-C stops the dashboard.\n",
				d.link())
			if err != nil {
				return errors.Join(err, d.listener.Close())
			}
			return d.Serve(ctx, d.listener)
		},
	}
	addKubeconfigFlag(cmd, &kubeconfig)
	o.addFlags(cmd.Flags())
	return cmd
}
