package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/server"
)

// methods holds calls of the methods that require a started control plane.
var methods = map[string]func(*server.Server) error{
	"URL":        func(s *server.Server) error { s.URL(); return nil },
	"RESTConfig": func(s *server.Server) error { s.RESTConfig(); return nil },
	"Kubeconfig": func(s *server.Server) error { s.Kubeconfig(); return nil },
	"User":       func(s *server.Server) error { _, err := s.User("jane"); return err },
	"Kinds":      func(s *server.Server) error { s.Kinds(); return nil },
	"Dir":        func(s *server.Server) error { s.Dir(); return nil },
	"Timeline":   func(s *server.Server) error { s.Timeline(); return nil },
}

// answer calls a method and returns the message of its error or panic.
func answer(s *server.Server, method func(*server.Server) error) (complaint string) {
	defer func() {
		if r := recover(); r != nil {
			complaint = fmt.Sprint(r)
		}
	}()
	if err := method(s); err != nil {
		return err.Error()
	}
	return ""
}

func complainsOfStart(t *testing.T, s *server.Server) {
	t.Helper()
	for name, method := range methods {
		if got, want := answer(s, method), "server: "+name+" called before Start"; !strings.HasPrefix(got,
			want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	select {
	case <-s.Failed():
		t.Error("failed")
	default:
	}
	if err := s.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

func TestMethodsBeforeStart(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	complainsOfStart(t, s)
}

func TestMethodsAfterFailedStart(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Start(ctx); err == nil {
		t.Fatal("started with a canceled context")
	}
	complainsOfStart(t, s)
}

// The methods keep working after a stop, so that a test can stop a control plane and then inspect
// it.
func TestMethodsAfterStop(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, method := range methods {
		if got := answer(s, method); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}
