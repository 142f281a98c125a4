package etcdstore

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// notification tells a handler about one change: an addition without old, a deletion without
// object, and an update otherwise.
type notification struct {
	old, object any
	initial     bool // the addition is part of the first list
	synced      bool // no change: the first list is complete
}

// listener calls one handler of an informer, change by change. A listener has a goroutine only
// while there are changes to handle.
type listener struct {
	handler  cache.ResourceEventHandler
	handling *sync.WaitGroup // the informer's
	synced   chan struct{}   // closed when the handler has seen the first list

	mu      sync.Mutex
	pending []notification
	busy    bool
	stopped bool
}

// add passes a notification on without waiting for the handler.
func (l *listener) add(n notification) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	l.pending = append(l.pending, n)
	if !l.busy {
		l.busy = true
		l.handling.Go(l.run)
	}
}

func (l *listener) run() {
	for {
		l.mu.Lock()
		if len(l.pending) == 0 || l.stopped {
			l.pending, l.busy = nil, false
			l.mu.Unlock()
			return
		}
		batch := l.pending
		l.pending = nil
		l.mu.Unlock()
		for _, n := range batch {
			l.handle(n)
		}
	}
}

func (l *listener) handle(n notification) {
	switch {
	case n.synced:
		close(l.synced)
	case n.old == nil:
		l.handler.OnAdd(n.object, n.initial)
	case n.object == nil:
		l.handler.OnDelete(n.old)
	default:
		l.handler.OnUpdate(n.old, n.object)
	}
}

// stop drops what is pending. It does not wait for the handler, which may be calling it.
func (l *listener) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (l *listener) HasSynced() bool { return closed(l.synced) }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (l *listener) HasSyncedChecker() cache.DoneChecker {
	return doneChecker{"handler of an etcd informer", l.synced}
}
