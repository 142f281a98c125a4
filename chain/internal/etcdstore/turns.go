package etcdstore

import (
	"context"
	"sync"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// readersAtOnce is how many histories are read at the same time. Each takes some MiB meanwhile.
const readersAtOnce = 4

// turns are those of the requests that read old versions. A request takes a turn for a few
// revisions, and then waits behind all others, so that one that searches everything holds up
// nobody. Each user has one request at a time.
type turns struct {
	all chan struct{} // has an element for each turn that is taken

	mu    sync.Mutex
	users map[string]*queue
}

// queue is that of a user's requests.
type queue struct {
	first   chan struct{} // has an element while a request is being served
	members int
}

func newTurns() *turns {
	return &turns{all: make(chan struct{}, readersAtOnce), users: map[string]*queue{}}
}

// begin waits until no other request of the user is served. The caller calls end afterwards.
func (t *turns) begin(ctx context.Context) (end func(), err error) {
	name := ""
	if user, ok := genericapirequest.UserFrom(ctx); ok {
		name = user.GetName()
	}
	t.mu.Lock()
	q := t.users[name]
	if q == nil {
		q = &queue{first: make(chan struct{}, 1)}
		t.users[name] = q
	}
	q.members++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if q.members--; q.members == 0 {
			delete(t.users, name)
		}
	}
	select {
	case q.first <- struct{}{}:
		return func() { <-q.first; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// take calls read when it is the request's turn.
func (t *turns) take(ctx context.Context, read func()) error {
	select {
	case t.all <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.all }()
	read()
	return nil
}
