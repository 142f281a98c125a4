package servertest

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/fault"
)

// Rule selects the requests that a fault hits; see [fault.Rule].
type Rule = fault.Rule

// Effect is what happens to the requests that a fault hits.
type Effect = fault.Effect

// Injected is a fault that a control plane has for the time of a test.
type Injected struct {
	t      TB
	config *rest.Config
	id     string
	last   *fault.Fault // nil until it is removed
}

// Fault lets requests to a control plane fail on purpose until the test ends or the fault is
// released. The fault hits every client: over TLS, in process, in another process, and control
// loops if the rule names them.
//
//	servertest.Fault(t, s, servertest.Rule{
//		UserAgent: "backup-operator", Verb: "update", Resource: "backups", Subresource: "status",
//		Times: 1,
//	}, servertest.Conflict())
//
// If more than one fault selects a request, the first one that was added hits it. A fault that has
// hit nothing when the test ends fails the test, unless the rule is optional. The request log of a
// failed test, and traces, show the fault of each request.
func Fault(t TB, c API, rule Rule, effect Effect) *Injected {
	t.Helper()
	ctx, cancel := helperContext(t)
	defer cancel()
	f := &Injected{t: t, config: c.RESTConfig()}
	added, err := fault.Add(ctx, f.config, fault.Fault{Rule: rule, Effect: effect})
	if err != nil {
		t.Fatalf("servertest: add a fault: %v", err)
	}
	f.id = added.ID
	t.Cleanup(func() {
		removed := f.remove()
		if removed != nil && removed.Count == 0 && !rule.Optional {
			t.Errorf("servertest: the fault %q hit no request", removed.String())
		}
	})
	return f
}

// Hits returns the requests that the fault has hit, the first thousand of them.
func (f *Injected) Hits() []fault.Hit {
	f.t.Helper()
	if f.last != nil {
		return f.last.Hits
	}
	ctx, cancel := helperContext(f.t)
	defer cancel()
	now, err := fault.Get(ctx, f.config, f.id)
	if err != nil {
		f.t.Fatalf("servertest: hits of a fault: %v", err)
	}
	return now.Hits
}

// Await waits until the fault has hit n requests. It fails the test if that takes longer than a
// minute.
func (f *Injected) Await(n int) {
	f.t.Helper()
	ctx, cancel := helperContext(f.t)
	defer cancel()
	var last fault.Fault
	if err := polling().Until(ctx, true, true, func(ctx context.Context) (done bool, err error) {
		last, err = fault.Get(ctx, f.config, f.id)
		return last.Count >= n, err
	}); err != nil {
		f.t.Fatalf("servertest: the fault %q has hit %d requests, want %d: %v", last.String(), last.Count,
			n, err)
	}
}

// Release removes the fault. Reads see the present again, and what was held back is sent.
func (f *Injected) Release() {
	f.t.Helper()
	f.remove()
}

// remove removes the fault, and returns it as it was at the end.
func (f *Injected) remove() *fault.Fault {
	if f.last != nil {
		return f.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), helperTimeout)
	defer cancel()
	removed, err := fault.Remove(ctx, f.config, f.id)
	if err != nil {
		f.t.Errorf("servertest: remove a fault: %v", err)
		return nil
	}
	f.last = &removed
	return f.last
}

// Status answers requests with an error before they have any effect, such as
// [apierrors.NewTooManyRequests]. The error's RetryAfterSeconds become the header Retry-After.
func Status(err apierrors.APIStatus) Effect {
	status := err.Status()
	return Effect{Action: fault.Status, Status: &status}
}

// Conflict answers update, patch and delete with 409, as if the object had changed since the client
// read it.
func Conflict() Effect { return Effect{Action: fault.Conflict} }

// TimedOut answers requests with 504 at once. They have no effect.
func TimedOut() Effect { return Effect{Action: fault.Timeout} }

// AnswerLost carries requests out, and ends the connection instead of answering.
func AnswerLost() Effect { return Effect{Action: fault.LoseAnswer} }

// ConnectionCut ends the connection of requests before they have any effect. With a rule that
// selects everything, it is an outage, which ends the running watches too.
func ConnectionCut() Effect { return Effect{Action: fault.Cut} }

// Delayed lets requests wait first.
func Delayed(by time.Duration) Effect { return Effect{Action: fault.Delay, Delay: by} }

// WatchEnded ends watches as their timeout would, those that are running too.
func WatchEnded() Effect { return Effect{Action: fault.EndWatch} }

// WatchBroken ends watches in the middle of their response, those that are running too.
func WatchBroken() Effect { return Effect{Action: fault.BreakWatch} }

// WatchExpired ends watches with 410, those that are running too, so that their clients list again.
func WatchExpired() Effect { return Effect{Action: fault.ExpireWatch} }

// WatchHeld keeps back the events of watches until the fault is released, those that are running
// too.
func WatchHeld() Effect { return Effect{Action: fault.HoldWatch} }

// Frozen lets get, list and watch see the present state until the fault is released, whatever is
// written meanwhile.
func Frozen() Effect { return Effect{Action: fault.Freeze} }

// Behind lets get, list and watch see what was so many revisions ago; each change of any object is
// a revision.
func Behind(revisions int64) Effect {
	return Effect{Action: fault.Behind, Revisions: revisions}
}
