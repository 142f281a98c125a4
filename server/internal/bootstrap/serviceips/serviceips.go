package serviceips

import (
	"context"
	"fmt"
	"time"

	"github.com/kinproc/kinproc/server/internal/allocation"
)

// Grace is longer than any request takes. An address that is still reserved without a service
// after that time has leaked.
const Grace = 90 * time.Second

// Repairer repairs the reservations.
type Repairer interface {
	Repair(ctx context.Context, free func(allocation.Leaks) allocation.Leaks) (allocation.Leaks, error)
}

// Controller runs the repair.
type Controller struct {
	repairer Repairer
	grace    time.Duration
	first    chan struct{} // closed after the first pass
}

// New returns a controller. Grace is how long a reservation may exist without a service. It is 0
// for a server that has its etcd to itself and does not serve requests yet.
func New(repairer Repairer, grace time.Duration) *Controller {
	return &Controller{repairer: repairer, grace: grace, first: make(chan struct{})}
}

// First returns a channel that is closed when the reservations have been repaired for the first
// time.
func (c *Controller) First() <-chan struct{} { return c.first }

// Run repairs the reservations. It returns when nothing is left to do or ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	leaks, err := c.repairer.Repair(ctx, c.firstPass)
	if err != nil {
		return fmt.Errorf("repair service addresses: %w", err)
	}
	close(c.first)
	if leaks.Empty() || c.grace == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(c.grace):
	}
	if _, err := c.repairer.Repair(ctx, func(allocation.Leaks) allocation.Leaks {
		return leaks
	}); err != nil {
		return fmt.Errorf("free leaked service addresses: %w", err)
	}
	return nil
}

// firstPass frees leaks at once only if they cannot belong to requests in flight.
func (c *Controller) firstPass(leaks allocation.Leaks) allocation.Leaks {
	if c.grace == 0 {
		return leaks
	}
	return allocation.Leaks{}
}
