package server_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kinproc/kinproc/server"
)

// stopBound is the time limit for calls that should return immediately.
const stopBound = 10 * time.Second

// stuckListener is a listener whose Close closes closing and blocks until released is closed.
type stuckListener struct {
	net.Listener
	closing  chan struct{}
	once     *sync.Once
	released chan struct{}
}

func (l stuckListener) Close() error {
	l.once.Do(func() { close(l.closing) })
	<-l.released
	return l.Listener.Close()
}

func TestStopIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := stuckListener{tcp, make(chan struct{}), new(sync.Once), make(chan struct{})}
	s, err := server.New(server.Options{Listener: l})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	returned := make(chan error, 1)
	go func() { returned <- s.Stop(ctx) }()
	<-l.closing
	cancel()
	select {
	case err := <-returned:
		if !errors.Is(err, context.Canceled) ||
			!strings.Contains(err.Error(), "waiting for the API servers") {
			t.Errorf("got %v, want an error that says what Stop was waiting for", err)
		}
	case <-time.After(stopBound):
		t.Error("Stop did not return when its context ended")
	}
	close(l.released)
	if err := s.Stop(context.Background()); err != nil {
		t.Errorf("the stop in the background failed: %v", err)
	}
}
