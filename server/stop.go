package server

import (
	"context"
	"fmt"
	"time"
)

// undoTimeout is how long a failed start waits for its cleanup.
const undoTimeout = 5 * time.Second

// Stop stops the control plane and waits until nothing of it is left: first the API servers, then
// etcd, then temporary files. It also stops a start that is in progress. If ctx ends early, the
// stop continues in the background, and the error says what Stop was waiting for. Further calls
// wait for the same stop and return its error.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	started, interrupt := s.started, s.interrupt
	s.mu.Unlock()
	if started == nil {
		return nil
	}
	interrupt(errStopped)
	select {
	case <-started:
		return s.stopper.Stop(ctx)
	case <-ctx.Done():
		return fmt.Errorf("stop: waiting for the end of the start: %w", context.Cause(ctx))
	}
}
