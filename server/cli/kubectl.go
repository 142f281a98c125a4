package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	basecli "k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	kubectlversion "k8s.io/kubectl/pkg/cmd/version"
	"sigs.k8s.io/yaml"

	"github.com/kinproc/kinproc/server"
)

func newKubectlCmd(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl",
		Short: "Run kubectl, by default against the sandbox of this directory",
		Long: `Run kubectl: the real one, built into this program.

It talks to the sandbox of the working directory or of the nearest directory above, unless
--kubeconfig or KUBECONFIG names another server. A sandbox that belongs to somebody else, or whose
kubeconfig holds more than kinproc writes, is refused. The kubeconfig in the home directory, which
may be for a real cluster, is used only if it is named.`,
		DisableFlagParsing: true, // they are kubectl's
		ValidArgsFunction:  completeKubectl,
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := newSandboxKubectl(s, args)
			if err != nil {
				return err
			}
			runKubectl(k)
			return nil
		},
	}
}

// runKubectl runs kubectl. If it fails, it prints the error and ends the process, as kubectl does.
func runKubectl(k *cobra.Command) {
	if err := basecli.RunNoErrOutput(k); err != nil {
		cmdutil.CheckErr(err)
	}
}

func newKubectlConfig(s streams) *genericclioptions.ConfigFlags {
	return genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().
		WithDiscoveryBurst(300).WithDiscoveryQPS(50).
		WithWarningPrinter(genericiooptions.IOStreams{In: s.in, Out: s.out, ErrOut: s.err})
}

// newSandboxKubectl returns a kubectl that talks to the sandbox unless KUBECONFIG names another
// server.
func newSandboxKubectl(s streams, args []string) (*cobra.Command, error) {
	config := newKubectlConfig(s)
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		found, err := sandboxForKubectl(".", args)
		if err != nil {
			return nil, err
		}
		guard(config, found)
		explain(config, found)
		// kubectl fails if a named file does not exist, so do not name one if the caller chooses
		// the server with a flag.
		if !slices.ContainsFunc(args, func(arg string) bool {
			return strings.HasPrefix(arg, "--server") || strings.HasPrefix(arg, "-s")
		}) {
			*config.KubeConfig = found.Kubeconfig
		}
		// kubectl config and plugins use only this variable.
		if err := os.Setenv(clientcmd.RecommendedConfigPathEnvVar, found.Kubeconfig); err != nil {
			return nil, err
		}
	}
	return newRealKubectl(s, config, args), nil
}

func newRealKubectl(
	s streams, config *genericclioptions.ConfigFlags, args []string,
) *cobra.Command {
	io := genericiooptions.IOStreams{In: s.in, Out: s.out, ErrOut: s.err}
	// An alias of a kuberc file sets the arguments of the command, which SetArgs would undo.
	// Without an alias, cobra takes those of the process, which does nothing but run kubectl.
	os.Args = append(os.Args[:1:1], args...)
	// kubectl logs before it parses its flags, for example that it has found no preferences. The
	// parser refuses what is no number.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(args))
	k := kubectl.NewDefaultKubectlCommandWithArgs(kubectl.KubectlOptions{
		PluginHandler: kubectl.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes),
		Arguments:     append([]string{"kubectl"}, args...),
		ConfigFlags:   config,
		IOStreams:     io,
	})
	if own, _, err := k.Find([]string{"version"}); err == nil {
		own.Run = func(cmd *cobra.Command, _ []string) {
			cmdutil.CheckErr(printKubectlVersion(cmd, config, io))
		}
	}
	return k
}

// printKubectlVersion replaces kubectl version, which knows its own version only if the linker sets
// it.
func printKubectlVersion(
	cmd *cobra.Command, config *genericclioptions.ConfigFlags, io genericiooptions.IOStreams,
) error {
	number := strings.Split(strings.TrimPrefix(server.KubernetesVersion, "v"), ".")
	info := kubectlversion.Version{ClientVersion: &version.Info{
		Major:      number[0],
		Minor:      number[1],
		GitVersion: server.KubernetesVersion,
		GoVersion:  runtime.Version(),
		Compiler:   runtime.Compiler,
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
	}}
	info.KustomizeVersion, _ = kubectlversion.GetKustomizeModVersion()
	var serverErr error
	if !cmdutil.GetFlagBool(cmd, "client") {
		client, err := config.ToDiscoveryClient()
		if err != nil {
			return err
		}
		client.Invalidate()
		info.ServerVersion, serverErr = client.ServerVersion()
	}
	data, err := []byte(nil), error(nil)
	switch output := cmdutil.GetFlagString(cmd, "output"); output {
	case "":
		data = fmt.Appendf(data, "Client Version: %s\nKustomize Version: %s",
			info.ClientVersion.GitVersion, info.KustomizeVersion)
		if info.ServerVersion != nil {
			data = fmt.Appendf(data, "\nServer Version: %s", info.ServerVersion.GitVersion)
		}
	case "json":
		data, err = json.MarshalIndent(info, "", "  ")
	case "yaml":
		data, err = yaml.Marshal(info)
	default:
		err = fmt.Errorf("--output %q: must be yaml or json", output)
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(io.Out, "%s\n", data); err != nil {
		return err
	}
	return serverErr
}

// completeKubectl asks kubectl for completions, which include object names.
func completeKubectl(
	_ *cobra.Command, args []string, typed string,
) ([]string, cobra.ShellCompDirective) {
	var answer, complaints bytes.Buffer
	request := append([]string{cobra.ShellCompRequestCmd}, args...)
	k, err := newSandboxKubectl(streams{in: strings.NewReader(""), out: &answer, err: &complaints},
		append(request, typed))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	k.SetOut(&answer)
	k.SetErr(&complaints)
	if err := k.Execute(); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	lines := strings.Split(strings.TrimSpace(answer.String()), "\n")
	last := lines[len(lines)-1]
	directive, err := strconv.Atoi(strings.TrimPrefix(last, ":"))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return lines[:len(lines)-1], cobra.ShellCompDirective(directive)
}
