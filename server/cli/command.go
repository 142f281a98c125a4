package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is an error in how a command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// streams are a command's input and output: data goes to out, messages for people go to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// exitError ends the program with an exit code and prints nothing more.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// untilInterrupted returns a context that the first interrupt cancels. The second interrupt ends
// the process. SIGTERM and SIGHUP count as the first interrupt but never as the second: SIGTERM
// because it may come from two calls of kinproc stop, SIGHUP because both the kernel and the shell
// send it when a terminal closes. SIGHUP is ignored if the parent process ignored it, as nohup
// does.
func untilInterrupted(parent context.Context) (context.Context, context.CancelFunc) {
	gentle := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		gentle = append(gentle, syscall.SIGHUP)
	}
	signals := append([]os.Signal{os.Interrupt}, gentle...)
	// Nobody reads this channel. Its only purpose is to disable the default action of the signals.
	signal.Notify(make(chan os.Signal, 1), gentle...)
	ctx, stop := signal.NotifyContext(parent, signals...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// noArgs is like cobra.NoArgs, but returns a usageError.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, but was given %q", cmd.CommandPath(), args)}
	}
	return nil
}
