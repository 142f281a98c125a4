// Package servertest starts control planes for tests.
//
//	func TestReconciler(t *testing.T) {
//		t.Parallel()
//		s := servertest.Run(t)
//		client := kubernetes.NewForConfigOrDie(s.RESTConfig())
//		…
//	}
//
// Every test gets a control plane of its own, on its own port and with its own etcd, that keeps nothing and goes with the test.
package servertest

import (
	"context"
	"time"

	"github.com/kinproc/kinproc/server"
)

// TB is what is needed of testing.TB, so that this package works under any test framework.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// The bounds of start and stop: an order of magnitude more than a loaded machine with the race detector needs.
const (
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
)

// Run starts a control plane and returns when it is ready. It stops with the test, which fails if either goes wrong. Each of configure
// may change the options, which are otherwise the zero ones.
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
		// The testing package keeps this function until the parent of parallel tests ends, and so all that it refers to.
		started = nil
	})
	return s
}

// WithoutControllers is an option for [Run]: nothing changes an object behind the test's back.
func WithoutControllers(o *server.Options) { o.Controllers = []string{"-*"} }
