package serviceips

import (
	"context"
	"fmt"
	"time"

	"github.com/kinproc/kinproc/server/internal/allocation"
)

// Grace is longer than a request takes: what another server has reserved and no service has after that time is leaked.
const Grace = 90 * time.Second

// Repairer is what is repaired.
type Repairer interface {
	Repair(ctx context.Context, free func(allocation.Leaks) allocation.Leaks) (allocation.Leaks, error)
}

// Controller repairs.
type Controller struct {
	repairer Repairer
	grace    time.Duration
}

// New makes a controller. Grace is the time that reservations have to get a service; 0 is for a server that is alone with its etcd and
// does not serve requests yet.
func New(repairer Repairer, grace time.Duration) *Controller {
	return &Controller{repairer: repairer, grace: grace}
}

// Run repairs and returns when nothing is left to do or ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	leaks, err := c.repairer.Repair(ctx, c.firstPass)
	if err != nil {
		return fmt.Errorf("repair service addresses: %w", err)
	}
	if leaks.Empty() || c.grace == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(c.grace):
	}
	if _, err := c.repairer.Repair(ctx, func(allocation.Leaks) allocation.Leaks { return leaks }); err != nil {
		return fmt.Errorf("free leaked service addresses: %w", err)
	}
	return nil
}

// firstPass frees leaks at once only where they cannot be requests in flight.
func (c *Controller) firstPass(leaks allocation.Leaks) allocation.Leaks {
	if c.grace == 0 {
		return leaks
	}
	return allocation.Leaks{}
}
