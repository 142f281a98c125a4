// Package tracer records the trace of a request, as package trace describes it.
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
	"time"

	"github.com/kinproc/kinproc/chain/trace"
)

// Trace is the trace of one request. The exported methods of a nil Trace do nothing.
type Trace struct {
	mu    sync.Mutex
	began time.Time
	show  func() bool
	steps []*trace.Step
}

type contextKey struct{}

// From returns the trace of the request with the given context, or nil if the client did not ask
// for one.
func From(ctx context.Context) *Trace {
	t, _ := ctx.Value(contextKey{}).(*Trace)
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
	t.mu.Lock()
	t.steps = append(t.steps, step)
	t.mu.Unlock()
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
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps = append(t.steps, &step)
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

// ShowIf sets the condition for showing the trace. The trace is sent only if show returns true at
// the end of the request; without a condition it is not sent.
func (t *Trace) ShowIf(show func() bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.show = show
}

// result returns the steps so far, and whether they may be shown.
func (t *Trace) result() ([]trace.Step, bool) {
	t.mu.Lock()
	show := t.show
	t.mu.Unlock()
	if show == nil || !show() {
		return nil, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	steps := make([]trace.Step, len(t.steps))
	for i, s := range t.steps {
		steps[i] = *s
	}
	slices.SortStableFunc(steps, func(a, b trace.Step) int { return cmp.Compare(a.Start, b.Start) })
	return steps, true
}

// WithTrace is the outermost filter. It adds a trace to requests that ask for one.
func WithTrace(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, asked := r.Header[trace.Header]; !asked {
			handler.ServeHTTP(w, r)
			return
		}
		t := &Trace{began: time.Now()}
		r = r.WithContext(context.WithValue(r.Context(), contextKey{}, t))
		// an extension API server may be a kinproc too, and would add a trailer with its own trace
		r.Header.Del(trace.Header)
		w.Header().Set("Trailer", trace.Header)
		handler.ServeHTTP(w, r)
		steps, ok := t.result()
		if !ok {
			return
		}
		if r.ProtoMajor == 1 {
			// Go's client refuses trailers of HTTP/1.1 that are larger than 4 KiB.
			for i := range steps {
				steps[i].Patch = nil
			}
		}
		if data, err := json.Marshal(steps); err == nil {
			w.Header().Set(trace.Header, string(data))
		}
	})
}
