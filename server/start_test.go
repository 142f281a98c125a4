package server

import (
	"context"
	"testing"
)

// start starts a control plane, and stops it when the test ends. The tests of package server_test
// use servertest.Run, which this package cannot import.
func start(t testing.TB, options Options) *Server {
	t.Helper()
	s, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}
