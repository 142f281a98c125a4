package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
)

const (
	// startTimeout is how long to wait for the server to become ready. The error says what is not
	// ready.
	startTimeout = time.Minute
	// brokenStopTimeout bounds the stop after a failure.
	brokenStopTimeout = 5 * time.Second
	// startGrace is how long to wait for an interrupted start to end. A start that is abandoned
	// after that leaves what a crash would leave, and the next start can deal with it.
	startGrace = 2 * time.Second
	// progressAfter is after how long a start says what it is doing, and progressInterval how often
	// it says so from then on.
	progressAfter    = time.Second
	progressInterval = 10 * time.Second
)

var errInterrupted = errors.New("interrupted before it was ready")

// serve starts a control plane, calls use when it is ready, and stops it when use has returned. If
// ctx ends, the start is interrupted; use has to look at ctx itself.
func serve(ctx context.Context, o server.Options, use func(*server.Server) error) (err error) {
	return serveAndTell(ctx, o, io.Discard, use)
}

// serveAndTell is like serve, and says what a start that takes long is doing.
func serveAndTell(
	ctx context.Context, o server.Options, w io.Writer, use func(*server.Server) error,
) (err error) {
	srv, err := server.New(o)
	if err != nil {
		return err
	}
	if err := startUntilReady(ctx, srv, w); err != nil {
		return err
	}
	defer func() {
		// After a failure, the error of the stop only follows from it.
		if stopErr := stopServer(ctx, srv); srv.Err() == nil {
			err = errors.Join(err, stopErr)
		}
	}()
	return use(srv)
}

// untilEnd returns nil when the context ends, and an error if the control plane fails.
func untilEnd(ctx context.Context, srv *server.Server) error {
	select {
	case <-ctx.Done():
		return nil
	case <-srv.Failed():
		return srv.Err()
	}
}

// stopServer stops the server. After a failure it waits for a shorter time, and no longer than
// until ctx ends, which Ctrl-C does.
func stopServer(ctx context.Context, srv *server.Server) error {
	timeout := brokenStopTimeout
	if srv.Err() == nil {
		ctx, timeout = context.WithoutCancel(ctx), sandbox.StopTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return srv.Stop(ctx)
}

// startUntilReady starts the control plane. If the start is interrupted but hangs, for example on a
// named pipe given in a flag or on a disk that does not respond, it does not wait long: the program
// ends, and the goroutine with it.
func startUntilReady(ctx context.Context, srv *server.Server, w io.Writer) error {
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- srv.Start(starting) }()
	began, patience := time.Now(), time.NewTimer(progressAfter)
	defer patience.Stop()
	var err error
	for waiting := true; waiting; {
		select {
		case err = <-started:
			waiting = false
		case <-patience.C:
			printProgress(w, srv, time.Since(began))
			patience.Reset(progressInterval)
		case <-ctx.Done():
			select {
			case err = <-started:
				waiting = false
			case <-time.After(startGrace):
				return errors.New("interrupted while the start hung; check whether a file that it reads is " +
					"a named pipe, or is on a disk that does not respond")
			}
		}
	}
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// printProgress says what a start is doing that takes long.
func printProgress(w io.Writer, srv *server.Server, waited time.Duration) {
	fmt.Fprintf(w, "kinproc: still starting after %s, in the phase %q\n", waited.Round(time.Second),
		srv.Starting())
}
