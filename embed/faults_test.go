package embed

import (
	"context"
	"errors"
	"testing"
)

// What hangs is left behind when its caller does not wait any more; what does not is waited for, so that it can be undone.
func TestCallIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	cancel(why)
	release := make(chan struct{})
	defer close(release)
	if err := newFaults().call(ctx, func() error { <-release; return nil }); !errors.Is(err, why) {
		t.Errorf("a call that hangs returned %v, want %v", err, why)
	}
	if err := newFaults().call(ctx, func() error { return nil }); err != nil {
		t.Errorf("a call that does not hang returned %v", err)
	}
}
