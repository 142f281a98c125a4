package server_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kinproc/kinproc/server"
)

// stopBound is how long what returns at once may take to do so.
const stopBound = 10 * time.Second

// stuckListener cannot be closed before released is.
type stuckListener struct {
	net.Listener
	released chan struct{}
}

func (l stuckListener) Close() error {
	<-l.released
	return l.Listener.Close()
}

func TestStopIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := stuckListener{tcp, make(chan struct{})}
	s, err := server.New(server.Options{Listener: l})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	returned := make(chan error, 1)
	go func() { returned <- s.Stop(ctx) }()
	select {
	case err := <-returned:
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for the API servers") {
			t.Errorf("it says %v, want what it waits for", err)
		}
	case <-time.After(stopBound):
		t.Error("Stop goes on after its context has ended")
	}
	close(l.released)
	if err := s.Stop(context.Background()); err != nil {
		t.Errorf("what went on in the background ended with %v", err)
	}
}
