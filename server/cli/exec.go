package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/term"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
	"github.com/kinproc/kinproc/server/serverflags"
)

func newExecCmd(s streams, own []string) *cobra.Command {
	o := &startOptions{ephemeral: true, server: ephemeralOptions()}
	parallel, kubernetes := 1, ""
	cmd := &cobra.Command{
		Use:   "exec [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command with a control plane of its own",
		Long: `Start an ephemeral control plane, run a command with it, and stop it when the command ends.

  kinproc exec -- pytest
  kinproc exec -- sh -c 'kubectl apply -f crds && go test ./...'

A file kinproc.yaml in the working directory describes the control plane, as for kinproc start; its
name, port and dashboard are left out.

The command finds the control plane by the environment variable KUBECONFIG. USE_EXISTING_CLUSTER is
true, so that tests with envtest use it too. KUBEBUILDER_ASSETS is a folder as kinproc
envtest-assets prints it, for tests that start further control planes. The exit code is that of the
command.

With --fault, requests fail on purpose, as kinproc fault --help says. A fault that has hit nothing
when the command ends makes exec fail, unless its words have optional.

  kinproc exec --fault 'verb=update resource=deployments times=1 conflict' -- go test ./...

With --parallel N, there are N control planes, for tests that run in N workers. KUBECONFIG_1 to
KUBECONFIG_N name their kubeconfigs, and KUBECONFIG the first. A fault is for each of them, and must
have hit something in one.

  kinproc exec --parallel 4 -- pytest -n 4

With --kubernetes, the control plane behaves as an earlier version of Kubernetes. KINPROC_KUBERNETES
tells the version to tests that start control planes themselves. With several versions, the command
runs once for each, and exec prints a table of results. The exit code is the largest one.

  kinproc exec --kubernetes=` + strings.Join(server.EmulatedVersions(), ",") + ` -- go test ./...`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("exec requires a command (see kinproc exec --help)")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			versions, err := versionsOf(kubernetes)
			switch {
			case err != nil:
				return usageError{err}
			case len(versions) > 0 && cmd.Flags().Changed("emulated-version"):
				return usageError{errors.New("--kubernetes and --emulated-version are mutually exclusive")}
			case len(versions) > 1:
				signals, stop := execSignals()
				defer stop()
				return execEach(s, versions, own, args, signals)
			}
			// own begins with the name of this command
			err = o.settle(cmd.Flags(), own[1:], "name", "secure-port", "dashboard")
			if err != nil {
				return err
			}
			if len(versions) == 1 {
				o.server.EmulatedVersion = versions[0]
			}
			return o.exec(cmd.Context(), s, parallel, args)
		},
	}
	cmd.Flags().SetInterspersed(false) // what follows the command is the command's
	var sections cliflag.NamedFlagSets
	sections.FlagSet("exec").StringArrayVar(&o.faults, "fault", nil,
		"fault in words, such as 'verb=update times=1 conflict'; may be repeated")
	sections.FlagSet("exec").IntVar(&parallel, "parallel", parallel,
		fmt.Sprintf("number of control planes, at most %d", maxParallel))
	sections.FlagSet("exec").StringVar(&kubernetes, "kubernetes", "",
		"versions of Kubernetes to run the command with: one or more of "+
			strings.Join(server.EmulatedVersions(), ","))
	sections.FlagSet("exec").IntVarP(&o.verbosity, "v", "v", 0,
		"log level for standard error; 0 logs nothing")
	addConfigFlag(sections.FlagSet("exec"), &o.config)
	addFromFlag(sections.FlagSet("exec"), &o.from)
	serverflags.Add(&o.server, &sections)
	_ = sections.FlagSet("serving").MarkHidden("data-dir") // the flag exists
	for _, set := range sections.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	completeServerFlags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("kubernetes", completeList(server.EmulatedVersions()))
	width, _, _ := term.TerminalSize(s.out)
	cliflag.SetUsageAndHelpFunc(cmd, sections, width)
	return cmd
}

// ephemeralOptions returns the options of a control plane for a command.
func ephemeralOptions() server.Options {
	return server.Options{
		SimulatedNodes: 1, SimulatedMetrics: true, LoadBalancerRange: defaultLoadBalancerRange,
	}
}

// maxParallel is how many control planes exec starts at most. Each takes about 15 MiB.
const maxParallel = 256

// exec runs a command with n ephemeral control planes.
func (o *startOptions) exec(ctx context.Context, s streams, n int, args []string) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	if err := o.validateParallel(n); err != nil {
		return usageError{err}
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return usageError{err}
	}
	faults, err := parseFaults(o.faults)
	if err != nil {
		return err
	}
	o.warn(s)
	// From here on, signals are for the command. Without a command they end the start.
	signals, stop := execSignals()
	defer stop()
	starting, cancel := untilInterrupted(ctx)
	defer cancel()
	o.server.Log = setLogging(o.verbosity)
	var beds []testBed
	var next func() error
	next = func() error {
		if len(beds) == n {
			cancel()
			return execWith(ctx, s, beds, program, args, signals)
		}
		return serve(starting, o.server, func(srv *server.Server) error {
			kubeconfig, err := sandbox.EntriesOf("exec", srv.Dir()).Write(srv.Kubeconfig())
			if err != nil {
				return err
			}
			if !o.server.ReadOnly {
				if err := applyManifests(starting, srv, &o.settled, io.Discard); err != nil {
					return err
				}
			}
			if len(beds) == 0 {
				warnResources(starting, s.err, srv.RESTConfig(), faults...)
			}
			bed := testBed{Server: srv, kubeconfig: kubeconfig}
			if bed.faults, err = addFaults(ctx, srv.RESTConfig(), faults); err != nil {
				return err
			}
			beds = append(beds, bed)
			return next()
		})
	}
	return next()
}

// validateParallel returns an error if there cannot be n control planes with these options.
func (o *startOptions) validateParallel(n int) error {
	if n < 1 || n > maxParallel {
		return fmt.Errorf("--parallel=%d: it must be from 1 to %d", n, maxParallel)
	}
	if n == 1 {
		return nil
	}
	for flag, given := range map[string]bool{
		"--secure-port":  o.server.SecurePort != 0,
		"--etcd-servers": len(o.server.EtcdServers) > 0,
		"--listen-etcd":  o.server.ListenEtcd != "",
	} {
		if given {
			return fmt.Errorf("--parallel=%d: leave out %s, which only one control plane can have", n, flag)
		}
	}
	return nil
}

// execWith runs a command with control planes that are ready.
func execWith(
	ctx context.Context, s streams, beds []testBed, program string, args []string,
	signals <-chan os.Signal,
) error {
	assets, err := linkedAssets(beds[0].Dir())
	if err != nil {
		return err
	}
	cmd := exec.Command(program, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.in, s.out, s.err
	cmd.Env = append(os.Environ(), "KUBECONFIG="+beds[0].kubeconfig, "USE_EXISTING_CLUSTER=true",
		assetsVariable+"="+assets, server.KubernetesVariable+"="+beds[0].Emulates())
	var servers []*server.Server
	for i, bed := range beds {
		cmd.Env = append(cmd.Env, fmt.Sprintf("KUBECONFIG_%d=%s", i+1, bed.kubeconfig))
		servers = append(servers, bed.Server)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run %s: %w", args[0], err)
	}
	if _, err := attend(cmd, servers, signals); err != nil {
		return err
	}
	return missedFaults(ctx, beds)
}
