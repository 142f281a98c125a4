package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"

	xterm "golang.org/x/term"

	"github.com/kinproc/kinproc/server"
)

// execSignals returns the signals that exec passes on, until stop is called.
func execSignals() (signals <-chan os.Signal, stop func()) {
	all := make(chan os.Signal, 4)
	signal.Notify(all, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return all, func() { signal.Stop(all) }
}

// attend waits for a command, and passes signals on to it. If a control plane fails, it ends the
// command. Interrupted is true if there was a signal.
func attend(
	cmd *exec.Cmd, servers []*server.Server, signals <-chan os.Signal,
) (interrupted bool, err error) {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	attending, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	defer func() { stop(); watching.Wait() }()
	for _, srv := range servers {
		watching.Go(func() {
			select {
			case <-srv.Failed():
				_ = cmd.Process.Kill()
			case <-attending.Done():
			}
		})
	}
	for {
		select {
		case s := <-signals:
			interrupted = true
			// A terminal sends Ctrl-C to the command too, which may take a second one for
			// impatience.
			if s != os.Interrupt || !xterm.IsTerminal(int(os.Stdin.Fd())) {
				_ = cmd.Process.Signal(s)
			}
		case err := <-ended:
			for _, srv := range servers {
				if srv.Err() != nil {
					return interrupted, srv.Err()
				}
			}
			if exit := new(exec.ExitError); errors.As(err, &exit) {
				return interrupted, exitError{exitCode(exit)}
			}
			return interrupted, err
		}
	}
}

// exitCode returns the exit code of a command, or what a shell returns for one that a signal ended.
func exitCode(exit *exec.ExitError) int {
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}
