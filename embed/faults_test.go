package embed

import (
	"context"
	"errors"
	"testing"
)

// A call that hangs is abandoned once its context has ended. A call that returns in time is waited
// for, so that it can be undone.
func TestCallIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	cancel(why)
	release, undone := make(chan struct{}), make(chan struct{})
	defer func() { close(release); <-undone }() // a late success is undone
	if err := newFaults().call(ctx, func() error { <-release; return nil },
		func() { close(undone) }); !errors.Is(err, why) {
		t.Errorf("a call that hangs returned %v, want %v", err, why)
	}
	if err := newFaults().call(ctx, func() error { return nil }, func() {}); err != nil {
		t.Errorf("a call that does not hang returned %v", err)
	}
}
