// Package explore tests what a controller does when things go wrong: it runs the controller again
// and again, each time with one disturbance, and compares what has become of the objects.
//
//	func TestNightly(t *testing.T) {
//		explore.Run(t, explore.Test{
//			InBubbles: true,
//			Prepare: func(t explore.TB, s *server.Server) {
//				servertest.CRDs(t, s, servertest.Files("config/crd/bases"))
//			},
//			Controller: nightly.Run, // func(context.Context, *rest.Config) error
//			Act: func(t explore.TB, config *rest.Config) {
//				servertest.Apply(t, servertest.ForConfig(config), "", servertest.Files("testdata"))
//			},
//		})
//	}
//
// First the controller runs twice undisturbed. Then the controller crashes before and after each of
// its writes, loses an answer, meets a conflict, starts with a cache that is behind, and sees
// events late, only in part, or not at all. Each disturbance is a subtest, in a control plane that
// begins with what Prepare has made. The subtest fails if
//
//   - the final state is not that of the undisturbed runs, except what differs between those two,
//   - a claim, a volume, a secret, a stateful set, a namespace, a custom resource, or what the
//     controller creates, is created or deleted more or less often than undisturbed,
//   - a write without a resource version removes what somebody else has set just before,
//   - what Always says is not true at a revision,
//   - the controller does not become idle, panics, or returns, or
//   - Act fails.
package explore

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/disturb"
	"github.com/kinproc/kinproc/server/internal/invariant"
	"github.com/kinproc/kinproc/server/servertest"
)

// Test is a controller with what a user does, which [Run] disturbs. The zero value of a field that
// is not said to be required has the documented meaning.
type Test struct {
	// Prepare creates what exists before the controller starts, such as CRDs. It is called once.
	// Default: nothing.
	Prepare func(t TB, s *server.Server)
	// Controller is the controller. It runs until ctx ends, and uses only clients for config.
	// Several controllers may run at the same time, for different control planes. Required.
	Controller func(ctx context.Context, config *rest.Config) error
	// Act does what a user does, with clients for config. Required.
	Act func(t TB, config *rest.Config)
	// Options configure the control planes, as in [servertest.Run]. Default: none.
	Options []func(*server.Options)
	// InBubbles runs each disturbance in a bubble of its own, as of [synctest.Test], in which no
	// time is lost by waiting. See [servertest.InBubble] for what a controller can do in a bubble.
	InBubbles bool

	// Always is what is to be true at each revision of each run, in CEL: expressions about lists of
	// objects, such as "pods.size() <= 3", and about the changes of a resource, such as
	// "claims: old == null || new != null". Default: nothing.
	Always []string
	// Pairs tries a crash during the recovery from each disturbance that the controller survives,
	// too. Default: false.
	Pairs bool
	// HoldWhileWaiting holds events back, and keeps the controller away when it is to miss a
	// change, until Act ends or calls Idle, even if the system is idle before that. Default: false.
	HoldWhileWaiting bool
	// Mask removes from an object what may differ at the end. Resource versions, UIDs, times,
	// addresses and generated names need no mask, nor what differs between the two undisturbed
	// runs. Default: none.
	Mask func(object *unstructured.Unstructured)
	// Settle is how long nothing must happen until the system counts as idle. Default: 100
	// milliseconds; in a bubble, a minute.
	Settle time.Duration
	// Patience is how long the system may take to become idle in the right final state, and how
	// long Act may take. It should be longer than the controller waits between two attempts.
	// Default: 3 seconds; in a bubble, ten minutes.
	Patience time.Duration

	// Only selects the disturbances to try: by their names, by patterns as of [path.Match], or by
	// their kind, such as "crash-after". One that selects nothing fails the test. Default: all.
	Only []string
	// Parallel limits how many disturbances are tried at the same time. Default: the number of
	// processors.
	Parallel int
	// Max limits the number of disturbances. The environment variable KINPROC_EXPLORE_MAX has
	// precedence. Default: no limit; 20 with go test -short.
	Max int
	// Since is the name of a commit. The disturbances of writes whose line of code is as it was
	// there are left out. The environment variable KINPROC_EXPLORE_SINCE has precedence. Default:
	// none is left out.
	Since string
	// Budget limits the time after which no disturbance begins. Default: no limit.
	Budget time.Duration
	// Seed changes the order of disturbances of one kind. The same seed gives the same order.
	// Default: the order of the requests.
	Seed uint64
}

// TB is what Prepare and Act get of a test.
type TB interface {
	servertest.TB
	// Context ends when the test has run out of patience.
	Context() context.Context
	// Idle waits until the system is idle, such as between two things that a user does. Unlike a
	// wait for a condition, it ends if the controller fails.
	Idle()
}

// Run disturbs a controller. Each disturbance is a subtest, which fails with a report if the
// controller does not recover from it. Select one with the flag -run of go test, and it happens
// again.
func Run(t *testing.T, test Test) {
	t.Helper()
	run(t, test, func(t *testing.T, report string) {
		t.Helper()
		t.Error(report)
	})
}

// Find is like [Run], but returns what it finds, and the subtests do not fail.
func Find(t *testing.T, test Test) []Finding {
	t.Helper()
	return run(t, test, func(*testing.T, string) {})
}

// Finding is a disturbance from which the controller did not recover.
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
	if t.Parallel < 0 {
		errs = append(errs, errors.New("the field Parallel is negative"))
	}
	_, err := invariant.ParseAll(t.Always)
	return errors.Join(append(errs, err)...)
}

// complete sets the defaults.
func (t *Test) complete() {
	settle, patience := 100*time.Millisecond, 3*time.Second
	if t.InBubbles {
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
	always, _ := invariant.ParseAll(t.Always) // validated
	return &disturb.Case{
		Controller: t.Controller,
		Act: func(ctx context.Context, config *rest.Config, waitIdle func()) error {
			// What Act has begun must not end before the final state is read.
			s := &scope{ctx: ctx, waitIdle: waitIdle, deadline: of.deadline, cleanup: of.Cleanup}
			s.do(func() { t.Act(s, config) })
			return errors.Join(s.errs...)
		},
		Always: always, HoldWhileWaiting: t.HoldWhileWaiting, Mask: t.Mask,
		Settle: t.Settle, Patience: t.Patience,
	}
}
