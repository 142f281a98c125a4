package standin

import (
	"context"
	"os"
)

// WithParent returns a context that ends when the parent process has ended, so that nothing is left
// of a test that was killed.
func WithParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	parent, err := os.FindProcess(os.Getppid())
	if err != nil {
		cancel() // it has ended
		return ctx, cancel
	}
	// The goroutine ends with the parent or with this process.
	go func() {
		_, _ = parent.Wait()
		cancel()
	}()
	return ctx, cancel
}
