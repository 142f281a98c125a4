package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/kinproc/kinproc/server/cli/internal/private"
)

// StopTimeout bounds a clean stop of a control plane.
const StopTimeout = 10 * time.Second

// process returns the process of a sandbox that has a record. It is nil if it has just ended.
func (s *Sandbox) process() (*os.Process, error) {
	dir, err := private.Open(s.Folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for attempt := 1; ; attempt++ {
		p, err := findProcess(dir, s.Record)
		if err == nil {
			return p, nil
		}
		if !s.Held() {
			return nil, nil
		}
		if attempt == lockAttempts {
			return nil, err
		}
		time.Sleep(time.Millisecond) // it gives up one lock after the other when it ends
	}
}

// Stop asks the process of a sandbox that runs to end, and waits for it.
func (s *Sandbox) Stop(ctx context.Context) error {
	if s.Wrong != nil {
		return s.Wrong
	}
	p, err := s.process()
	if err != nil {
		return err
	}
	if p != nil {
		if err := Terminate(p); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return errors.Join(fmt.Errorf("stop process %d: %w", s.Record.PID, err), p.Release())
		}
		defer func() { _ = p.Release() }()
	}
	ctx, cancel := context.WithTimeout(ctx, StopTimeout+time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.Held() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d has not ended yet: %w; check its log, or kill it",
				s.Record.PID, ctx.Err())
		case <-tick.C:
		}
	}
	if s.Record.Ephemeral && inEphemeral(s.Folder) {
		// The process does this too, unless it was killed, and may not be done yet.
		return removeEphemeral(s.Folder)
	}
	return nil
}
