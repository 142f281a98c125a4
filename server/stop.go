package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// undoTimeout is how long a start that failed waits for the end of what it had begun.
const undoTimeout = 5 * time.Second

// Stop ends the control plane and waits until nothing of it is left: first the API servers, then etcd, then temporary files. A start that
// is under way is ended. The context bounds the wait: when it ends early, the stop goes on in the background, and the error says what for.
// Further calls wait for the first one's stop and return what it did.
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
	s.stopOnce.Do(func() {
		s.waitingFor.Store("its beginning")
		go func() {
			defer close(s.stopped)
			s.stopErr = s.stopAll()
		}()
	})
	select {
	case <-s.stopped:
		return s.stopErr
	case <-ctx.Done():
		return fmt.Errorf("stop: waiting for %s: %w", s.waitingFor.Load(), context.Cause(ctx))
	}
}

// stopAll is the order in which things end: none before those that use it.
func (s *Server) stopAll() error {
	s.waitingFor.Store("the service default/kubernetes")
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.stopServices()
	if s.backend != nil {
		s.backend.Hold()
	}
	s.cancel()
	s.waitingFor.Store("the API servers and control loops")
	s.running.Wait()
	if s.listener != nil {
		s.listener.closeAll()
	}
	s.waitingFor.Store("requests")
	if s.transport != nil {
		s.transport.Stop()
	}
	s.requests.Wait()
	s.waitingFor.Store("watch caches")
	if s.backend != nil {
		s.backend.Stop()
	}
	s.waitingFor.Store("etcd")
	var errs []error
	if s.etcd != nil {
		errs = append(errs, s.etcd.stop(context.Background()))
	}
	if s.options.DataDir == "" && s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
