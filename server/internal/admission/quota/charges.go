package quota

import (
	"context"
	"sync"
	"sync/atomic"
)

// Charges are the requests that charge quotas: from before they do so until they have ended, with
// their objects stored or not. Whoever counts objects to see what a quota has been charged for
// nothing has to wait for the requests that may have paid already. The zero value is ready for use.
type Charges struct {
	mu      sync.Mutex
	running map[string]map[*charge]struct{} // by namespace
}

type charge struct{ ended atomic.Bool }

// Begin says that a request is about to charge the quotas of a namespace. It ends with ctx, which
// is that of the request, or when the returned function is called.
func (c *Charges) Begin(ctx context.Context, namespace string) (end func()) {
	began := &charge{}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = map[string]map[*charge]struct{}{}
	}
	if c.running[namespace] == nil {
		c.running[namespace] = map[*charge]struct{}{}
	}
	c.running[namespace][began] = struct{}{}
	ended := func() {
		if began.ended.Swap(true) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.running[namespace], began); len(c.running[namespace]) == 0 {
			delete(c.running, namespace)
		}
	}
	stop := context.AfterFunc(ctx, ended)
	return func() { stop(); ended() }
}

// Running returns a function that reports whether one of the requests that charge the quotas of a
// namespace at present is still running.
func (c *Charges) Running(namespace string) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	present := make([]*charge, 0, len(c.running[namespace]))
	for began := range c.running[namespace] {
		present = append(present, began)
	}
	return func() bool {
		for _, began := range present {
			if !began.ended.Load() {
				return true
			}
		}
		return false
	}
}
