package server

import (
	"context"
	"fmt"
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
		ready, answer := p.askReady(ctx)
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
func (p *plane) askReady(ctx context.Context) (ready bool, says string) {
	code, body := p.requests.Ask(ctx, "/readyz?verbose", "")
	return code == http.StatusOK, string(body)
}
