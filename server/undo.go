package server

import (
	"errors"
	"sync"
)

// undo is what a control plane has begun. Stop ends it, the last thing first.
type undo struct {
	mu    sync.Mutex
	steps []undoStep
	begun bool
	what  string // the step that runs
}

type undoStep struct {
	what string
	do   func() error
}

// push adds a step. What is what the step ends, for the error of a stop that waits for it in vain. Once
// the undoing has begun, push adds nothing and returns false.
func (u *undo) push(what string, do func() error) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.begun {
		u.steps = append(u.steps, undoStep{what, do})
	}
	return !u.begun
}

// run runs all steps, whether or not one fails.
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

// running is what the step that runs ends.
func (u *undo) running() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.what
}
