// Package epoch lets a control loop notice that the control plane was reset while it worked. What
// it would do next follows from objects that may not exist any more.
package epoch

import (
	"context"
	"sync/atomic"
)

// Counter counts the resets of a control plane.
type Counter struct{ n atomic.Int64 }

// Next begins the next epoch.
func (c *Counter) Next() { c.n.Add(1) }

// Now returns a stamp for work that begins now.
func (c *Counter) Now() *Stamp { return &Stamp{c, c.n.Load()} }

type (
	counterKey struct{}
	stampKey   struct{}
)

// Stamp says in which epoch some work began.
type Stamp struct {
	counter *Counter
	n       int64
}

// Stale reports whether the control plane was reset since. It is false without a stamp.
func (s *Stamp) Stale() bool { return s != nil && s.counter.n.Load() != s.n }

// With returns a context in which [Begin] finds the counter.
func With(ctx context.Context, c *Counter) context.Context {
	return context.WithValue(ctx, counterKey{}, c)
}

// Begin returns a context for one piece of work of a control loop, which begins now. Requests with
// that context fail after a reset.
func Begin(ctx context.Context) context.Context {
	c, ok := ctx.Value(counterKey{}).(*Counter)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, stampKey{}, c.Now())
}

// Of returns when the work of a context began, or nil if [Begin] was not called.
func Of(ctx context.Context) *Stamp {
	s, _ := ctx.Value(stampKey{}).(*Stamp)
	return s
}

// Passed returns ctx with the stamp s, if it is not nil.
func Passed(ctx context.Context, s *Stamp) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, stampKey{}, s)
}
