// Package trace records the way of one request through the chain: who it was taken for, what each server decided, and how often it
// went to etcd.
//
// A request asks for it with the header [Header] and gets it, as JSON, in the trailer of the same name. Nobody else pays: without the
// header there is no trace in the request's context, and every function here is a nil check.
package trace

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

const (
	// Header asks for a trace in a request, with any value, and holds it in the response's trailer.
	Header = "Kinproc-Trace"
	// Path is the non-resource URL which a user must be allowed to get, to see traces. It serves nothing.
	Path = "/debug/trace"
)

// Step is what happened to the request in one place.
type Step struct {
	// At is the place: "authentication", "authorization", "etcd" or the name of a server of the chain.
	At string `json:"at"`
	// Decision is what the place decided, such as "allowed", "delegated" or "served".
	Decision string `json:"decision"`
	// Reason says why, where there is more to say.
	Reason string `json:"reason,omitempty"`
	// Start is when the request came there, after its arrival, and Took is how long it stayed, including what it delegated to. Both
	// are in nanoseconds.
	Start time.Duration `json:"start"`
	Took  time.Duration `json:"took"`
}

// Trace is the way of one request. The methods of a nil Trace do nothing.
type Trace struct {
	mu    sync.Mutex
	began time.Time
	show  func() bool
	steps []*Step
}

type contextKey struct{}

// From is the trace of the request with the given context, or nil if nobody asked.
func From(ctx context.Context) *Trace {
	t, _ := ctx.Value(contextKey{}).(*Trace)
	return t
}

// Begin starts a step. The returned function ends it; it may be called more than once, and the last decision holds.
func (t *Trace) Begin(at string) (end func(decision, reason string)) {
	if t == nil {
		return func(string, string) {}
	}
	began := time.Now()
	step := &Step{At: at, Start: began.Sub(t.began)}
	t.mu.Lock()
	t.steps = append(t.steps, step)
	t.mu.Unlock()
	return func(decision, reason string) {
		t.mu.Lock()
		defer t.mu.Unlock()
		step.Decision, step.Reason, step.Took = decision, reason, time.Since(began)
	}
}

// Passed reports whether the request has come to the place.
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

// ShowIf sets who may see the trace: it is sent only if show returns true at the end of the request. Without it, it is not sent.
func (t *Trace) ShowIf(show func() bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.show = show
}

// result is the steps so far, unless they are not to be shown.
func (t *Trace) result() ([]Step, bool) {
	t.mu.Lock()
	show := t.show
	t.mu.Unlock()
	if show == nil || !show() {
		return nil, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	steps := make([]Step, len(t.steps))
	for i, s := range t.steps {
		steps[i] = *s
	}
	return steps, true
}

// WithTrace is the outermost filter: it gives a trace to requests that ask for one.
func WithTrace(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, asked := r.Header[Header]; !asked {
			handler.ServeHTTP(w, r)
			return
		}
		t := &Trace{began: time.Now()}
		r = r.WithContext(context.WithValue(r.Context(), contextKey{}, t))
		r.Header.Del(Header) // an extension API server may be a kinproc too, and its trailer is not ours
		w.Header().Set("Trailer", Header)
		handler.ServeHTTP(w, r)
		steps, ok := t.result()
		if !ok {
			return
		}
		if data, err := json.Marshal(steps); err == nil {
			w.Header().Set(Header, string(data))
		}
	})
}
