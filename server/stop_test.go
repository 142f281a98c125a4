package server_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
)

// stopBound is the time limit for calls that should return immediately, on a busy machine.
const stopBound = time.Minute

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

// heldListener is a listener whose start is held in the phase "access", which asks for the address.
type heldListener struct {
	net.Listener
	starting func() string
	held     chan struct{} // closed when the start is held
	release  chan struct{} // closed to go on with it
	once     sync.Once
}

func (l *heldListener) Addr() net.Addr {
	if l.starting() == "access" {
		l.once.Do(func() { close(l.held) })
		<-l.release
	}
	return l.Listener.Addr()
}

func TestInterruptedStartFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		interrupt func(*testing.T, *server.Server, context.CancelFunc)
		want      string
	}{
		{"its context ends", func(_ *testing.T, _ *server.Server, cancel context.CancelFunc) {
			cancel()
		}, context.Canceled.Error()},
		{"it is stopped", func(t *testing.T, s *server.Server, _ context.CancelFunc) {
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := s.Stop(ended); !errors.Is(err, context.Canceled) ||
				!strings.Contains(err.Error(), "waiting for the end of the start") {
				t.Errorf("stop: %v, want an error that says what Stop was waiting for", err)
			}
		}, "stopped while starting"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			tcp, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l := &heldListener{
				Listener: tcp, held: make(chan struct{}), release: make(chan struct{}),
			}
			s, err := server.New(server.Options{Listener: l})
			if err != nil {
				t.Fatal(err)
			}
			l.starting = s.Starting
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			started := make(chan error, 1)
			go func() { started <- s.Start(ctx) }()
			select {
			case <-l.held:
			case err := <-started:
				t.Fatalf("the start was not held: %v", err)
			}
			test.interrupt(t, s, cancel)
			close(l.release)
			if err := <-started; err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("start: %v, want %q", err, test.want)
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestInProcessAfterStop checks that requests fail once the control plane has stopped.
func TestInProcessAfterStop(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	config, err := s.InProcessConfig("tester", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	watch, err := maps.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	for range watch.ResultChan() { // the watch ends
	}
	ctx, cancel := context.WithTimeout(t.Context(), stopBound)
	defer cancel()
	if _, err := maps.List(ctx, metav1.ListOptions{}); err == nil ||
		errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("list after the stop: %v, want an error at once", err)
	}
}
