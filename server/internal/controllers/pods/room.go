package pods

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// burst is how many pods an owner gets in a pass.
	burst = 500
	// crowd is how many pods an owner has when it gets further ones ever more slowly: pace divided
	// by the number of its pods, per second. Otherwise the replicas of one object could fill the
	// memory. 10,000 pods take less than a minute, and 50,000 are created at the rate of
	// kube-controller-manager.
	crowd = 2000
	pace  = 1_000_000
)

// crowds are the owners of very many pods.
type crowds struct {
	mu   sync.Mutex
	last map[types.UID]time.Time // when the owner got pods
}

// Room returns how many pods may be created now for an owner that has some and lacks others. Wait
// is the time after which there is room for more, if the pods that are created do not tell.
func (c *Control) Room(owner types.UID, has, lacks int) (n int, wait time.Duration) {
	return c.crowds.room(owner, has, lacks, time.Now())
}

func (c *crowds) room(
	owner types.UID, has, lacks int, now time.Time,
) (n int, wait time.Duration) {
	if lacks <= 0 {
		return 0, 0
	}
	if has < crowd {
		return min(lacks, burst), 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if wait := c.last[owner].Add(time.Second).Sub(now); wait > 0 {
		return 0, wait
	}
	if c.last == nil {
		c.last = map[types.UID]time.Time{}
	}
	c.last[owner] = now
	return min(lacks, max(1, pace/has)), time.Second
}

func (c *crowds) forget(owner types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last, owner)
}
