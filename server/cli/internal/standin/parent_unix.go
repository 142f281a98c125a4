//go:build unix

package standin

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// parentInterval is how often to look whether the parent still runs.
const parentInterval = 250 * time.Millisecond

// WithParent returns a context that ends when the parent process has ended, so that nothing is left
// of a test that was killed. A program that was detached on purpose, with setsid or nohup, outlives
// its parent.
//
// It polls, because the signal that Linux can send is tied to the thread that started the program,
// and a Go program may end that thread at any time.
func WithParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	session, err := unix.Getsid(0)
	if err == nil && session == os.Getpid() || signal.Ignored(syscall.SIGHUP) {
		return ctx, cancel
	}
	parent := os.Getppid()
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		tick := time.NewTicker(parentInterval)
		defer tick.Stop()
		for os.Getppid() == parent {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		cancel()
	}()
	return ctx, func() { cancel(); <-watching }
}
