package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/fault"
)

// faultWords describes the words of a fault.
const faultWords = `A fault is a rule and an action, in words. The rule selects requests by user=NAME,
user-agent=PART, verb=VERB[,VERB...], resource=PLURAL[.GROUP], subresource=NAME, namespace=NAME,
name=NAME and path=PATTERN. It can skip=N of them, and hit N times=N, with a chance=0.1 and a seed=N,
or for=DURATION.

  status=CODE        answer with an error; reason=, message= and retry-after=SECONDS add to it
  conflict           answer 409 to an update, patch or delete
  timeout            answer 504 at once, without any effect
  lose-answer        carry out the request, and end the connection instead of answering
  cut                end the connection without any effect
  delay=DURATION     let the request wait
  end-watch          end watches as their timeout would, those that are running too
  break-watch        end watches in the middle of their response
  expire-watch       end watches with 410, so that clients list again
  hold-watch         keep back the events of watches until the fault is removed
  freeze[=REVISION]  let reads see the present state, or an old one, until the fault is removed
  behind=N           let reads see the state of N revisions ago`

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
  kinproc fault add user-agent=my-operator status=503 retry-after=2 for=1m
  kinproc fault add cut for=10s`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := fault.Parse(args)
			if err != nil {
				return usageError{fmt.Errorf("%w (see kinproc fault add --help)", err)}
			}
			config, err := clientConfig(kubeconfig)
			if err != nil {
				return err
			}
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

func newFaultListCmd(s streams) *cobra.Command {
	var kubeconfig, output string
	var hits bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the faults of a control plane, and how many requests each has hit",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return usageError{fmt.Errorf("--output: %q is not a format, use json", output)}
			}
			config, err := clientConfig(kubeconfig)
			if err != nil {
				return err
			}
			all, err := fault.All(cmd.Context(), config)
			if err != nil {
				return fmt.Errorf("list faults: %w", err)
			}
			if output == "json" {
				encoder := json.NewEncoder(s.out)
				encoder.SetIndent("", "  ")
				return encoder.Encode(fault.List{Items: all})
			}
			w := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "ID\tHITS\tENDED\tFAULT")
			for _, f := range all {
				fmt.Fprintf(w, "%s\t%d\t%v\t%s\n", f.ID, f.Count, f.Ended, f.String())
				for _, hit := range f.Hits {
					if hits {
						fmt.Fprintf(w, "\t\t\t  %s %s\n", hit.Time.Format("15:04:05.000"), hit)
					}
				}
			}
			return w.Flush()
		},
	}
	addKubeconfigFlag(cmd, &kubeconfig)
	cmd.Flags().BoolVar(&hits, "hits", false, "show the requests that each fault has hit")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or text if empty")
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
			config, err := clientConfig(kubeconfig)
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
				fmt.Fprintf(s.out, "fault %s has hit %d requests\n", id, removed.Count)
			}
			return nil
		},
	}
	addKubeconfigFlag(cmd, &kubeconfig)
	cmd.Flags().BoolVar(&all, "all", false, "remove all faults")
	return cmd
}

// parseFaults returns the faults of flags, each of which has the words of one.
func parseFaults(flags []string) (all []fault.Fault, err error) {
	for _, words := range flags {
		f, err := fault.Parse(strings.Fields(words))
		if err != nil {
			return nil, usageError{fmt.Errorf("--fault: %w (see kinproc fault --help)", err)}
		}
		all = append(all, f)
	}
	return all, nil
}

// addFaults adds faults, and sets their IDs.
func addFaults(ctx context.Context, config *rest.Config, all []fault.Fault) error {
	for i := range all {
		added, err := fault.Add(ctx, config, all[i])
		if err != nil {
			return fmt.Errorf("--fault %q: %w", all[i].String(), err)
		}
		all[i] = added
	}
	return nil
}

// missedFaults returns an error for the faults that have hit nothing in any control plane, but
// should have.
func missedFaults(ctx context.Context, beds []testBed) error {
	var errs []error
	for i, f := range beds[0].faults {
		missed := !f.Rule.Optional
		for _, bed := range beds {
			now, err := fault.Get(ctx, bed.RESTConfig(), bed.faults[i].ID)
			switch {
			case apierrors.IsNotFound(err): // the command has removed it
				missed = false
			case err != nil:
				errs = append(errs, err)
			case now.Count > 0:
				missed = false
			}
		}
		if missed {
			errs = append(errs, fmt.Errorf("the fault %q hit no request", f.String()))
		}
	}
	return errors.Join(errs...)
}
