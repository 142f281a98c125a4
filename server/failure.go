package server

import "sync"

// failure holds the first reason why a control plane cannot continue.
type failure struct {
	once     sync.Once
	happened chan struct{}
	err      error // valid once happened is closed
}

func newFailure() *failure { return &failure{happened: make(chan struct{})} }

func (f *failure) set(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.happened)
	})
}

func (f *failure) get() error {
	select {
	case <-f.happened:
		return f.err
	default:
		return nil
	}
}
