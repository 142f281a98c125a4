package server

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// undoTimeout is how long a start that failed waits for the end of what it had begun.
const undoTimeout = 5 * time.Second

// stopping is the one stop of a control plane.
type stopping struct {
	once  sync.Once
	ended chan struct{}
	err   error // to be read after ended is closed
}

// Stop ends the control plane and waits until nothing of it is left: first the API servers, then etcd,
// then temporary files. Stop ends a start that is under way, too. If ctx ends early, the stop goes on in
// the background, and the error names what Stop waited for. Further calls wait for the same stop and
// return its error.
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
		return s.stop(ctx)
	case <-ctx.Done():
		return fmt.Errorf("stop: waiting for the end of the start: %w", context.Cause(ctx))
	}
}

func (s *Server) stop(ctx context.Context) error {
	s.stopping.once.Do(func() {
		go func() {
			defer close(s.stopping.ended)
			s.stopping.err = s.undo.run()
		}()
	})
	select {
	case <-s.stopping.ended:
		return s.stopping.err
	case <-ctx.Done():
		return fmt.Errorf("stop: waiting for %s: %w", s.undo.running(), context.Cause(ctx))
	}
}
