package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/fault"
	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
	"github.com/kinproc/kinproc/server/internal/nearest"
)

// faultWords describes the words of a fault.
const faultWords = `A fault is a rule and an effect, in words. The rule selects requests by user=NAME,
user-agent=PART, verb=VERB[,VERB...], resource=PLURAL[.GROUP], subresource=NAME, namespace=NAME,
name=NAME and path=PATTERN. It can skip=N of them, and hit N times=N, with a chance=0.1 and a seed=N,
or for=DURATION.

  fail=CODE          answer with an error; reason=, message= and retry-after=SECONDS add to it
  conflict           answer 409 to an update, patch or delete
  time-out           answer 504 at once, without any effect
  lose-answer        carry out the request, and end the connection instead of answering
  cut                end the connection without any effect
  delay=DURATION     let the request wait
  end-watch          end watches as their timeout would, including those that are running
  break-watch        end watches in the middle of their response
  expire-watch       end watches with 410, so that clients list again
  hold-watch         hold back the events of watches until the fault is removed
  freeze[=REVISION]  let reads see the present state, or an old one, until the fault is removed
  lag=N              let reads see the state of N revisions ago`

func newFaultCmd(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fault",
		Short: "Let requests fail on purpose, to see how a controller takes it",
		Long: "Let requests to a running control plane fail on purpose. Only administrators may.\n\n" +
			faultWords,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFaultAddCmd(s), newFaultListCmd(s), newFaultRemoveCmd(s))
	return cmd
}

func newFaultAddCmd(s streams) *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "add WORD...",
		Short: "Add a fault, and print its number",
		Long: "Add a fault to a running control plane, and print its number.\n\n" + faultWords + `

  kinproc fault add verb=update resource=deployments subresource=status times=1 conflict
  kinproc fault add user-agent=my-operator fail=503 retry-after=2 for=1m
  kinproc fault add cut for=10s`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := parseFault(args)
			if err != nil {
				return usageError{fmt.Errorf("%w (see kinproc fault add --help)", err)}
			}
			config, err := sandbox.ClientConfig(kubeconfig)
			if err != nil {
				return err
			}
			warnResources(cmd.Context(), s.err, config, f)
			added, err := fault.Add(cmd.Context(), config, f)
			if err != nil {
				return fmt.Errorf("add a fault: %w", err)
			}
			fmt.Fprintln(s.out, added.ID)
			return nil
		},
	}
	addKubeconfigFlag(cmd, &kubeconfig)
	return cmd
}

// parseFault returns the fault that some words describe. The error asks which word may have been
// meant.
func parseFault(words []string) (fault.Spec, error) {
	f, err := fault.Parse(words)
	if unknown := new(fault.UnknownError); errors.As(err, &unknown) {
		if question := nearest.Ask(unknown.Word, unknown.Known); question != "" {
			err = fmt.Errorf("%w; %s", err, question)
		}
	}
	return f, err
}

// warnResources warns of resources of faults that the server does not have, if they are spelt
// almost like one that it has. While the server has faults, nobody asks it, since they might hit
// that.
func warnResources(ctx context.Context, w io.Writer, config *rest.Config, specs ...fault.Spec) {
	if !slices.ContainsFunc(specs, func(s fault.Spec) bool { return s.Rule.Resource != "" }) {
		return
	}
	if all, err := fault.All(ctx, config); err != nil || len(all) > 0 {
		return
	}
	setLogging(0) // what discovery complains about is left to others
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return
	}
	_, lists, _ := client.ServerGroupsAndResourcesWithContext(ctx) // a part will do
	var names []string
	for _, list := range lists {
		group := schema.FromAPIVersionAndKind(list.GroupVersion, "").Group
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") {
				full := schema.GroupResource{Group: group, Resource: r.Name}
				names = append(names, r.Name, full.String())
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, spec := range specs {
		resource := spec.Rule.Resource
		if question := nearest.Ask(resource, names); resource != "" && question != "" &&
			!slices.Contains(names, resource) {
			fmt.Fprintf(w, "kinproc: warning: the server has no resource %q; %s\n",
				output.Line(resource), question)
		}
	}
}

func newFaultListCmd(s streams) *cobra.Command {
	var kubeconfig, format string
	var hits bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the faults of a control plane, and how many requests each has hit",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.CheckFormat(format, "json"); err != nil {
				return usageError{err}
			}
			config, err := sandbox.ClientConfig(kubeconfig)
			if err != nil {
				return err
			}
			all, err := fault.All(cmd.Context(), config)
			if err != nil {
				return fmt.Errorf("list faults: %w", err)
			}
			if format == "json" {
				return output.JSON(s.out, fault.List{Items: all})
			}
			rows := [][]string{{"ID", "HITS", "ENDED", "FAULT"}}
			for _, f := range all {
				rows = append(rows, []string{
					f.ID, strconv.Itoa(f.Status.Count), strconv.FormatBool(f.Status.Ended), f.Spec.String(),
				})
				for _, hit := range f.Status.Hits {
					if hits {
						rows = append(rows, []string{
							"", "", "", "  " + hit.Time.Format("15:04:05.000") + " " + hit.String(),
						})
					}
				}
			}
			return output.Table(s.out, rows)
		},
	}
	addKubeconfigFlag(cmd, &kubeconfig)
	cmd.Flags().BoolVar(&hits, "hits", false, "show the requests that each fault has hit")
	addFormatFlag(cmd, &format)
	return cmd
}

func newFaultRemoveCmd(s streams) *cobra.Command {
	var kubeconfig string
	var all bool
	cmd := &cobra.Command{
		Use:   "remove ID...",
		Short: "Remove faults, and release what they hold",
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usageError{errors.New(
					"remove takes the numbers of faults, or --all (see kinproc fault remove --help)")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := sandbox.ClientConfig(kubeconfig)
			if err != nil {
				return err
			}
			if all {
				return fault.RemoveAll(cmd.Context(), config)
			}
			for _, id := range args {
				removed, err := fault.Remove(cmd.Context(), config, id)
				if err != nil {
					return fmt.Errorf("remove fault %s: %w", id, err)
				}
				fmt.Fprintf(s.out, "fault %s has hit %d requests\n", id, removed.Status.Count)
			}
			return nil
		},
	}
	addKubeconfigFlag(cmd, &kubeconfig)
	cmd.Flags().BoolVar(&all, "all", false, "remove all faults")
	return cmd
}
