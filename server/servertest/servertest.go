// Package servertest starts control planes for tests.
//
//	func TestReconciler(t *testing.T) {
//		t.Parallel()
//		s := servertest.Run(t)
//		client := kubernetes.NewForConfigOrDie(s.RESTConfig())
//		…
//	}
//
// Every test gets its own control plane with its own port and its own etcd. The control plane is
// ephemeral and stops when the test ends.
package servertest

import (
	"context"
	"time"

	"github.com/kinproc/kinproc/server"
)

// TB is the part of testing.TB that this package needs, so that it works with any test framework.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Timeouts of start and stop, an order of magnitude longer than needed on a loaded machine with the
// race detector.
const (
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
)

// Run starts a control plane, returns it when it is ready, and stops it when the test ends. The
// test fails if the start or the stop fails. The functions in configure can change the options,
// which are zero by default.
func Run(t TB, configure ...func(*server.Options)) *server.Server {
	t.Helper()
	var options server.Options
	for _, c := range configure {
		c(&options)
	}
	s, err := server.New(options)
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		t.Fatalf("servertest: start: %v", err)
	}
	started := s
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := started.Stop(ctx); err != nil {
			t.Errorf("servertest: stop: %v", err)
		}
		// The testing package keeps this function, and everything it refers to, until the parent of
		// parallel tests ends.
		started = nil
	})
	return s
}

// WithoutControllers is an option for [Run] that disables all controllers, so that nothing changes
// objects behind the test's back.
func WithoutControllers(o *server.Options) { o.Controllers = []string{"-*"} }
