// Package explore tests what a controller does when things go wrong: it runs a case again and
// again, each time with one disturbance, and compares what has become of the objects.
//
//	func TestNightly(t *testing.T) {
//		explore.Run(t, explore.Test{
//			Prepare: func(t explore.TB, s *server.Server) {
//				servertest.CRDs(t, s, servertest.Files("config/crd/bases"))
//			},
//			Controller: nightly.Run, // func(context.Context, *rest.Config) error
//			Act: func(t explore.TB, config *rest.Config) {
//				servertest.Apply(t, servertest.ForConfig(config), "", servertest.Files("testdata"))
//			},
//		}, explore.InBubbles(synctest.Test))
//	}
//
// First the case runs twice undisturbed. Then the controller crashes before and after each of its
// writes, loses an answer, meets a conflict, starts with a cache that is behind, and sees events
// late, only in part, or not at all. Each disturbance is a subtest, in a control plane that begins
// with what Prepare has made. The subtest fails if
//
//   - the end state is not that of the undisturbed runs, except what differs between those two,
//   - a claim, a volume, a secret, a stateful set, a namespace or a custom resource is deleted more
//     often than undisturbed,
//   - the controller does not come to rest, panics, or ends, or
//   - Act fails.
package explore

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/disturb"
	"github.com/kinproc/kinproc/server/servertest"
)

// Test is a case that [Run] disturbs. The zero value of a field that is not said to be required has
// the documented meaning.
type Test struct {
	// Prepare creates what exists before the controller starts, such as CRDs. It is called once.
	// Default: nothing.
	Prepare func(t TB, s *server.Server)
	// Controller is the controller. It runs until ctx ends, and uses only clients for config. Several
	// controllers may run at the same time, for different control planes. Required.
	Controller func(ctx context.Context, config *rest.Config) error
	// Act does what a user does, with clients for config. Required.
	Act func(t TB, config *rest.Config)
	// Options configure the control planes, as in [servertest.Run]. Default: none.
	Options []func(*server.Options)

	// Mask removes from an object what may differ at the end. Resource versions, UIDs, times,
	// addresses and generated names need no mask, nor what differs between the two undisturbed runs.
	// Default: none.
	Mask func(object *unstructured.Unstructured)
	// Settle is how long nothing must happen until the system counts as being at rest. Default: 100
	// milliseconds; in a bubble, a minute.
	Settle time.Duration
	// Patience is how long the system may take to come to rest with the right end state, and how long
	// Act may take. It should be longer than the controller waits between two attempts. Default: 3
	// seconds; in a bubble, ten minutes.
	Patience time.Duration

	// Max limits the number of disturbances. The environment variable KINPROC_EXPLORE_MAX has
	// precedence. Default: no limit; 20 with go test -short.
	Max int
	// Budget limits the time after which no disturbance begins. Default: no limit.
	Budget time.Duration
	// Seed changes the order of disturbances of one kind. The same seed gives the same order. Default:
	// the order of the requests.
	Seed uint64
}

// TB is what Prepare and Act get of a test.
type TB interface {
	servertest.TB
	// Context ends when the test has run out of patience.
	Context() context.Context
	// Rest waits until the system is at rest, such as between two things that a user does. Unlike a
	// wait for a condition, it ends if the controller fails.
	Rest()
}

// testingT is the part of a *testing.T that this package needs, so that it does not import testing.
type testingT[T any] interface {
	servertest.TB
	Run(name string, f func(T)) bool
	Failed() bool
	Logf(format string, args ...any)
}

// An Option of [Run] is what [InBubbles] returns.
type Option[T any] struct{ bubble func(T, func(T)) }

// InBubbles runs each disturbance in a bubble of its own, in which no time is lost by waiting:
//
//	explore.Run(t, test, explore.InBubbles(synctest.Test))
//
// See [servertest.InBubble] for what a controller can do in a bubble.
func InBubbles[T any](bubble func(T, func(T))) Option[T] { return Option[T]{bubble} }

// Run disturbs a case. Each disturbance is a subtest, which fails with a report if the controller
// does not get over it. Select one with the flag -run of go test, and it happens again. As many run
// at the same time as there are processors.
func Run[T testingT[T]](t T, test Test, options ...Option[T]) {
	t.Helper()
	newExploration(t, test, options).run(func(t T, f Finding) {
		t.Helper()
		t.Errorf("%s", f.Report)
	})
}

// Find is like [Run], but returns what it finds, and the subtests do not fail.
func Find[T testingT[T]](t T, test Test, options ...Option[T]) []Finding {
	t.Helper()
	return newExploration(t, test, options).run(func(T, Finding) {})
}

// Finding is a disturbance that the controller did not get over.
type Finding struct {
	// Name is that of the disturbance, which is the name of its subtest.
	Name string
	// Report says what happened, and what is wrong at the end.
	Report string
}

func (t *Test) validate() error {
	var errs []error
	if t.Controller == nil {
		errs = append(errs, errors.New("the field Controller is nil"))
	}
	if t.Act == nil {
		errs = append(errs, errors.New("the field Act is nil"))
	}
	return errors.Join(errs...)
}

// complete sets the defaults.
func (t *Test) complete(bubble bool) {
	settle, patience := 100*time.Millisecond, 3*time.Second
	if bubble {
		settle, patience = time.Minute, 10*time.Minute
	}
	if t.Settle == 0 {
		t.Settle = settle
	}
	if t.Patience == 0 {
		t.Patience = max(patience, 10*t.Settle)
	}
}

// engine returns the case as the engine knows it.
func (t *Test) engine(of *scope) *disturb.Case {
	return &disturb.Case{
		Controller: t.Controller,
		Act: func(ctx context.Context, config *rest.Config, rest func()) error {
			// What Act has begun must not end before the end state is read.
			s := &scope{ctx: ctx, rest: rest, deadline: of.deadline, cleanup: of.Cleanup}
			s.do(func() { t.Act(s, config) })
			return errors.Join(s.errs...)
		},
		Mask: t.Mask, Settle: t.Settle, Patience: t.Patience,
	}
}
