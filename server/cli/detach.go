package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
)

// startDetached starts the control plane in a separate process with the same arguments, in a
// directory, or in the working directory if that is empty. It returns when that process is ready or
// has failed.
//
// Until then, the process writes to pipes. When it is ready, it prints the screen, and closes its
// ends of the pipes by switching its output to the log file.
func startDetached(ctx context.Context, s streams, dir string, args []string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(program, append(args[:len(args):len(args)], "--detached")...)
	cmd.Dir, cmd.SysProcAttr = dir, detachedProcess()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	complaints, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	endInterrupt := context.AfterFunc(ctx, func() { _ = sandbox.Terminate(cmd.Process) })
	defer endInterrupt()

	var screen bytes.Buffer
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = screen.ReadFrom(out) })
	reading.Go(func() { _, _ = io.Copy(s.err, complaints) })
	reading.Wait()
	if screen.Len() > 0 && ctx.Err() == nil {
		_, err := screen.WriteTo(s.out)
		return errors.Join(err, cmd.Process.Release())
	}
	err = cmd.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exitError{exit.ExitCode()}
	}
	if err != nil {
		return fmt.Errorf("the control plane ended before it was ready: %w", err)
	}
	return errInterrupted
}
