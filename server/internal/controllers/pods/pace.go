package pods

import (
	"sync"
	"time"
)

// perPod and longestPause limit how often an owner is looked at while its pods change: each time
// costs a write and a look at all pods.
const (
	perPod       = time.Millisecond
	longestPause = 100 * time.Millisecond
)

// Pace tells how long to leave the owner of many pods alone after its status was written.
type Pace struct {
	mu      sync.Mutex
	written map[string]time.Time // by the key of the owner
}

// Pause returns how long to wait before the next look at an owner with n pods. It is not positive
// if there is no need to.
func (p *Pace) Pause(key string, n int32) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.written[key].Add(min(time.Duration(n)*perPod, longestPause)))
}

// Wrote notes that the status of an owner was written.
func (p *Pace) Wrote(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.written == nil {
		p.written = map[string]time.Time{}
	}
	p.written[key] = time.Now()
}

// Forget forgets an owner that is gone.
func (p *Pace) Forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.written, key)
}
