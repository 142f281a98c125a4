// Package tracer records the traces of requests, as package trace describes them.
//
// Requests without a trace cost next to nothing: they have no [Trace] in their context, and each
// function here begins with a check for nil.
package tracer

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/trace"
)

// Trace is the trace of one request. The exported methods of a nil Trace do nothing.
type Trace struct {
	began    time.Time
	asked    string // what the client asked for
	followed bool   // whether somebody follows the request
	over     atomic.Bool

	mu      sync.Mutex
	objects bool // whether the trace shows objects
	show    bool // whether the client may see the trace
	steps   []*trace.Step
	user    string
	info    *genericapirequest.RequestInfo // nil before the request is authenticated
	object  object
}

// maxSteps limits the steps of a trace. Long watches and lists in many pages would have more.
const maxSteps = 1000

type contextKey struct{}

// From returns the trace of the request with the given context, or nil if nobody will see one.
func From(ctx context.Context) *Trace {
	t, _ := ctx.Value(contextKey{}).(*Trace)
	if t != nil && t.over.Load() {
		return nil
	}
	return t
}

// Begin starts a step. The returned function ends it. It may be called more than once; the last
// call wins.
func (t *Trace) Begin(at string) (end func(decision, reason string)) {
	if t == nil {
		return func(string, string) {}
	}
	began := time.Now()
	step := &trace.Step{At: at, Start: began.Sub(t.began)}
	t.add(step)
	return func(decision, reason string) {
		t.mu.Lock()
		defer t.mu.Unlock()
		step.Decision, step.Reason, step.Took = decision, reason, time.Since(began)
	}
}

// Add adds a step that has ended. It sets the step's times.
func (t *Trace) Add(step trace.Step, from, to time.Time) {
	if t == nil {
		return
	}
	step.Start, step.Took = from.Sub(t.began), to.Sub(from)
	t.add(&step)
}

func (t *Trace) add(step *trace.Step) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.steps) < maxSteps {
		if step.Object == nil {
			step.Object = t.decoded(step)
		}
		t.steps = append(t.steps, step)
	}
}

// Identify says who sent the request and what it is for.
func (t *Trace) Identify(user string, info *genericapirequest.RequestInfo) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.user, t.info = user, info
}

// Passed reports whether the request has reached a place.
func (t *Trace) Passed(at string) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.steps {
		if s.At == at {
			return true
		}
	}
	return false
}

// Asked reports whether the client asked for the trace.
func (t *Trace) Asked() bool { return t != nil && t.asked != "" }

// Show says whether the client may see the trace, which is not sent otherwise. A trace that nobody
// may see ends here, so that it costs nothing.
func (t *Trace) Show(may bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.show = may
	t.objects = t.objects || may && t.asked == trace.Objects
	if !may && !t.followed {
		t.over.Store(true)
	}
}

// sorted returns the steps so far, in the order of their beginnings.
func (t *Trace) sorted() []trace.Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	steps := make([]trace.Step, len(t.steps))
	for i, s := range t.steps {
		steps[i] = *s
	}
	slices.SortStableFunc(steps, func(a, b trace.Step) int { return cmp.Compare(a.Start, b.Start) })
	return steps
}

// trailer returns the trace for the trailer of the response to r. It is empty if the user may not
// see the trace.
func (t *Trace) trailer(r *http.Request) string {
	t.mu.Lock()
	show := t.show
	t.mu.Unlock()
	if !show {
		return ""
	}
	steps := t.sorted()
	if r.ProtoMajor == 1 {
		// Go's client refuses trailers of HTTP/1.1 that are larger than 4 KiB.
		for i := range steps {
			steps[i].Patch, steps[i].Object = nil, nil
		}
	}
	data, err := json.Marshal(steps)
	if err != nil {
		return ""
	}
	return string(data)
}
