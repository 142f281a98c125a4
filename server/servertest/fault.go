package servertest

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/fault"
	"github.com/kinproc/kinproc/server/internal/install"
)

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
//	servertest.Fault(t, s, fault.Rule{
//		UserAgent: "backup-operator", Verb: "update", Resource: "backups", Subresource: "status",
//		Times: 1,
//	}, fault.Conflict())
//
// Package fault has the rules and the effects. If more than one fault selects a request, the first
// one that was added hits it. A fault that has hit nothing when the test ends fails the test,
// unless the rule is optional. The request log of a failed test, and traces, show the fault of each
// request.
func Fault(t TB, c API, rule fault.Rule, effect fault.Effect) *Injected {
	t.Helper()
	ctx, cancel := helperContext(t)
	defer cancel()
	f := &Injected{t: t, config: c.RESTConfig()}
	added, err := fault.Add(ctx, f.config, fault.Spec{Rule: rule, Effect: effect})
	if err != nil {
		t.Fatalf("servertest: add a fault: %v", err)
	}
	f.id = added.ID
	t.Cleanup(func() {
		removed := f.remove()
		if removed != nil && removed.Status.Count == 0 && !rule.Optional {
			t.Errorf("servertest: the fault %q hit no request", removed.Spec.String())
		}
	})
	return f
}

// Hits returns the requests that the fault has hit, the first thousand of them.
func (f *Injected) Hits() []fault.Hit {
	f.t.Helper()
	if f.last != nil {
		return f.last.Status.Hits
	}
	ctx, cancel := helperContext(f.t)
	defer cancel()
	now, err := fault.Get(ctx, f.config, f.id)
	if err != nil {
		f.t.Fatalf("servertest: hits of a fault: %v", err)
	}
	return now.Status.Hits
}

// Await waits until the fault has hit n requests. It fails the test if that takes longer than a
// minute.
func (f *Injected) Await(n int) {
	f.t.Helper()
	ctx, cancel := helperContext(f.t)
	defer cancel()
	if err := install.Until(ctx, func(ctx context.Context) error {
		now, err := fault.Get(ctx, f.config, f.id)
		if err != nil {
			return install.Fatal(err)
		}
		if now.Status.Count < n {
			return fmt.Errorf("%q has hit %d requests, want %d", now.Spec.String(),
				now.Status.Count, n)
		}
		return nil
	}); err != nil {
		f.t.Fatalf("servertest: await a fault: %v", err)
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
