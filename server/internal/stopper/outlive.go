package stopper

import (
	"context"
	"time"
)

// Outlive returns a context that ends some time after its parent, for the parent's cause, or when
// cancel is called.
func Outlive(
	parent context.Context, by time.Duration,
) (ctx context.Context, cancel context.CancelCauseFunc) {
	ctx, end := context.WithCancelCause(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		select {
		case <-time.After(by):
			end(context.Cause(parent))
		case <-ctx.Done():
		}
	})
	return ctx, func(cause error) {
		stop()
		end(cause)
	}
}
