package server

import (
	"errors"
	"sync"
)

// undo is a stack of steps that clean up after a control plane. Stop runs them, the last one first.
type undo struct {
	mu    sync.Mutex
	steps []undoStep
	begun bool
	what  string // the description of the running step
}

type undoStep struct {
	what string
	do   func() error
}

// push adds a step. The argument what names the thing that the step ends, for the error of a stop
// that times out. Once cleanup has begun, push adds nothing and returns false.
func (u *undo) push(what string, do func() error) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.begun {
		u.steps = append(u.steps, undoStep{what, do})
	}
	return !u.begun
}

// run runs all steps, even if some of them fail.
func (u *undo) run() error {
	var errs []error
	for {
		step, ok := u.next()
		if !ok {
			return errors.Join(errs...)
		}
		errs = append(errs, step.do())
	}
}

func (u *undo) next() (undoStep, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.begun = true
	last := len(u.steps) - 1
	if last < 0 {
		return undoStep{}, false
	}
	step := u.steps[last]
	u.steps, u.what = u.steps[:last], step.what
	return step, true
}

// running returns what the running step ends.
func (u *undo) running() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.what
}
