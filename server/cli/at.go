package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
	"github.com/kinproc/kinproc/server/internal/requests/paths"
)

// moments says what a moment looks like.
const moments = "a time of the last 24 hours such as 14:53:02, a date and time such as " +
	"2006-01-02T15:04:05, a duration such as -5m, or a revision"

func newAtCmd(s streams) *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "at MOMENT -- COMMAND [ARGUMENT...]",
		Short: "Run a command against a control plane as it was",
		Long: `Run a command against a control plane as it was at an earlier moment: ` + moments + `.
A time without a fraction stands for the end of that second, so that what kinproc history shows with
this time is there. --history-kept of kinproc start says how far back one can go.

  kinproc at 14:53:02 -- kubectl get pods
  kinproc at -5m -- kubectl get deployment web -o yaml
  kinproc at 1234 -- ./report.sh

The command finds a copy of that state by the environment variable KUBECONFIG. The copy has a control
plane of its own, without control loops and nodes, which refuses to change anything. Whoever may take
snapshots may do this; they have all Secrets in them. kubectl is that of kinproc if there is no other
one. The exit code is that of the command.`,
		// A moment may look like a flag.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			text, args, err := parseAt(cmd, args)
			switch {
			case errors.Is(err, pflag.ErrHelp):
				return cmd.Help()
			case err != nil:
				return usageError{fmt.Errorf("%w (see kinproc at --help)", err)}
			}
			at, err := parseMoment(text, time.Now())
			if err != nil {
				return usageError{err}
			}
			if _, err := exec.LookPath(args[0]); args[0] == "kubectl" && err != nil {
				program, err := os.Executable()
				if err != nil {
					return fmt.Errorf("find this program: %w", err)
				}
				args = slices.Insert(args, 0, program)
			}
			return runAt(cmd.Context(), s, kubeconfig, at, args)
		},
	}
	addKubeconfigFlag(cmd, &kubeconfig)
	return cmd
}

// parseAt returns the moment and the command of the arguments, and sets the flags before them.
func parseAt(cmd *cobra.Command, args []string) (at string, command []string, err error) {
	cmd.InitDefaultHelpFlag()
	if i := slices.Index(args, "--"); i >= 0 {
		args, command = args[:i], args[i+1:]
	}
	if n := len(args); n > 0 && hasDigit(strings.TrimPrefix(args[n-1], "-")) {
		args, at = args[:n-1], args[n-1]
	}
	if err := cmd.Flags().Parse(args); err != nil {
		return "", nil, err
	}
	if help, _ := cmd.Flags().GetBool("help"); help {
		return "", nil, pflag.ErrHelp
	}
	if at == "" || cmd.Flags().NArg() > 0 || len(command) == 0 {
		return "", nil, errors.New("at requires a moment, --, and a command")
	}
	return at, command, nil
}

// hasDigit reports whether a text begins with a digit.
func hasDigit(text string) bool { return text != "" && text[0] >= '0' && text[0] <= '9' }

func newForkCmd(s streams) *cobra.Command {
	var kubeconfig, text string
	cmd := &cobra.Command{
		Use:   "fork DIRECTORY [-- FLAG...]",
		Short: "Start another sandbox with the objects of a running control plane",
		Long: `Start a sandbox in another directory, in the background, with the objects of a running control
plane, as they are or as they were at an earlier moment: ` + moments + `.
What follows -- are flags of kinproc start.

  kinproc fork ../experiment
  kinproc fork --at 14:53:02 ../before -- --simulate-nodes=3`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || cmd.ArgsLenAtDash() > 1 || cmd.ArgsLenAtDash() < 0 && len(args) > 1 {
				return usageError{errors.New("fork requires one directory (see kinproc fork --help)")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var at moment
			var err error
			if text != "" {
				if at, err = parseMoment(text, time.Now()); err != nil {
					return usageError{fmt.Errorf("--at: %w", err)}
				}
			}
			return fork(cmd.Context(), s, kubeconfig, at, args[0], args[1:])
		},
	}
	addKubeconfigFlag(cmd, &kubeconfig)
	cmd.Flags().StringVar(&text, "at", "", "moment: "+moments)
	return cmd
}

// moment is a revision, or a time, or the present if it is zero.
type moment struct {
	revision int64
	time     time.Time
}

// parseMoment returns the moment that a text describes.
func parseMoment(text string, now time.Time) (moment, error) {
	if n, err := strconv.ParseUint(text, 10, 63); err == nil {
		if n == 0 {
			return moment{}, errors.New("0 is no revision")
		}
		return moment{revision: int64(n)}, nil
	}
	at, err := parseTime(text, now)
	switch {
	case err != nil:
		return moment{}, fmt.Errorf("%q is no moment: use %s", text, moments)
	case at.Truncate(time.Second).After(now):
		return moment{}, fmt.Errorf("%q is in the future", text)
	}
	return moment{time: at}, nil
}

// parseTime returns the time that a text describes. Seconds without a fraction end at the next one.
func parseTime(text string, now time.Time) (time.Time, error) {
	if ago := strings.TrimPrefix(text, "-"); hasDigit(ago) {
		if d, err := time.ParseDuration(ago); err == nil {
			return now.Add(-d), nil
		}
	}
	var at time.Time
	var err error
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04:05", time.DateTime, time.TimeOnly, "15:04",
	} {
		if at, err = time.ParseInLocation(layout, text, now.Location()); err == nil {
			break
		}
	}
	if err != nil {
		return at, err
	}
	if at.Year() == 0 { // without a date
		at = time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(),
			at.Nanosecond(), now.Location())
		if at.After(now) {
			at = at.AddDate(0, 0, -1)
		}
	}
	if !strings.Contains(text, ".") {
		at = at.Add(time.Second - 1)
	}
	return at, nil
}

// of returns the request for the snapshot of the moment.
func (m moment) of(client *rest.RESTClient) *rest.Request {
	request := client.Get().AbsPath(paths.Snapshot)
	switch {
	case m.revision != 0:
		request.Param(paths.RevisionParameter, strconv.FormatInt(m.revision, 10))
	case !m.time.IsZero():
		request.Param(paths.TimeParameter, m.time.Format(time.RFC3339Nano))
	}
	return request
}

// snapshotClient returns a client that takes snapshots of a running control plane.
func snapshotClient(kubeconfig string) (*rest.RESTClient, error) {
	config, err := sandbox.ClientConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	return rawClient(config)
}

// runAt runs a command with a copy of a control plane at a moment.
func runAt(
	ctx context.Context, s streams, kubeconfig string, at moment, command []string,
) error {
	client, err := snapshotClient(kubeconfig)
	if err != nil {
		return err
	}
	stream, err := at.of(client).Stream(ctx)
	if err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	defer stream.Close()
	o := &startOptions{ephemeral: true, server: server.Options{ReadOnly: true}}
	if o.server.From, err = server.ReadSnapshot(stream); err != nil {
		return err
	}
	return o.exec(ctx, s, 1, command)
}

// fork starts a sandbox with a snapshot in a directory.
func fork(
	ctx context.Context, s streams, kubeconfig string, at moment, dir string, flags []string,
) (err error) {
	client, err := snapshotClient(kubeconfig)
	if err != nil {
		return err
	}
	temporary, remove, err := embed.TempDir("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	snapshot := filepath.Join(temporary, "snapshot.db")
	if _, err := saveSnapshot(ctx, client, at, snapshot); err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	made := os.Mkdir(dir, 0o777)
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return made
	}
	args := append([]string{"start", "--detach", "--from", snapshot}, flags...)
	err = startDetached(ctx, s, dir, args)
	if err != nil && made == nil {
		_ = os.Remove(dir) // unless something is in it
	}
	return err
}
