package pods

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ExpectationTimeout is how long to wait until the informer sees a write. It takes milliseconds,
// unless the informer has lost the watch and the pod came and went before it listed again. After
// that time, the expectations of an owner are satisfied without an event.
const ExpectationTimeout = 10 * time.Second

// expectations are the pods that were created or deleted, which the informer has yet to see as
// such.
type expectations struct {
	mu     sync.Mutex
	owners map[types.UID]writes
}

// writes are the writes for one owner.
type writes map[types.UID]write

type write struct {
	deleted bool
	at      time.Time
}

func (p *expectations) created(owner, pod types.UID) { p.add(owner, pod, false) }
func (p *expectations) deleted(owner, pod types.UID) { p.add(owner, pod, true) }

func (p *expectations) add(owner, pod types.UID, deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owners[owner] == nil {
		p.owners[owner] = writes{}
	}
	p.owners[owner][pod] = write{deleted, time.Now()}
}

// seen removes the write that the informer has seen. Gone is set for a pod that is deleted or being
// deleted.
func (p *expectations) seen(owner, pod types.UID, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, ok := p.owners[owner][pod]; ok && (gone || !w.deleted) {
		delete(p.owners[owner], pod)
		if len(p.owners[owner]) == 0 {
			delete(p.owners, owner)
		}
	}
}

func (p *expectations) satisfied(owner types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.owners[owner] {
		if time.Since(w.at) < ExpectationTimeout {
			return false
		}
	}
	delete(p.owners, owner)
	return true
}

func (p *expectations) forget(owner types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.owners, owner)
}
