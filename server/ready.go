package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/kinproc/kinproc/server/internal/etcdconn"
)

// waitReady waits until /readyz reports that the server is ready.
func (p *plane) waitReady(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	says := ""
	undecodable, giveUp := p.storage.Undecodable(), (<-chan time.Time)(nil)
	for {
		ready, answer := p.self.askReady(ctx)
		if ready {
			return nil
		}
		if answer != "" {
			says = answer
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w; /readyz says:\n%s", context.Cause(ctx), says)
		case <-undecodable:
			undecodable, giveUp = nil, time.After(etcdconn.DamageGrace)
		case <-giveUp:
			return etcdconn.ErrDamage
		case <-tick.C:
		}
	}
}

// askReady requests /readyz in process. The handler panics if ctx ends while it runs; the transport
// recovers from the panic.
func (s *self) askReady(ctx context.Context) (ready bool, says string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.config.Host+"/readyz?verbose", nil)
	if err != nil {
		return false, err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+s.config.BearerToken) // anonymous requests may be refused
	answer, err := s.transport.RoundTrip(r)
	if err != nil {
		return false, ""
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return err == nil && answer.StatusCode == http.StatusOK, string(body)
}
