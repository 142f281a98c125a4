package embed

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"go.etcd.io/etcd/pkg/v3/schedule"
	"go.uber.org/zap"
)

// A call that hangs is abandoned once its context has ended. A call that returns in time is waited
// for, so that it can be undone.
func TestCallIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("interrupted")
		cancel(why)
		release, undone := make(chan struct{}), make(chan struct{})
		defer func() { close(release); <-undone }() // a late success is undone
		if err := newFaults().call(ctx, func() error { <-release; return nil },
			func() { close(undone) }); !errors.Is(err, why) {
			t.Errorf("a call that hangs returned %v, want %v", err, why)
		}
		if err := newFaults().call(ctx, func() error { return nil }, func() {}); err != nil {
			t.Errorf("a call that does not hang returned %v", err)
		}
	})
}

// Whether a call has a goroutine of its own or that of its caller, it returns the fault by which
// etcd would end the process, and calls after it return that fault too.
func TestCallReturnsItsFault(t *testing.T) {
	t.Parallel()
	for name, ctx := range map[string]context.Context{
		"own goroutine":      t.Context(),
		"caller's goroutine": Abandonable(t.Context()),
	} {
		for kind, fail := range map[string]func(*zap.Logger){
			"fatal": func(lg *zap.Logger) { lg.Fatal("the disk is full") },
			"panic": func(*zap.Logger) { panic("the disk is full") },
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				f := newFaults()
				for range 2 {
					_, err := untilFault(ctx, f, func() (int, error) {
						fail(f.logger(nil))
						return 1, nil
					})
					if err == nil || err.Error() != "etcd: the disk is full" {
						t.Errorf("got %v", err)
					}
				}
			})
		}
	}
}

// A call on its own goroutine does not wait for one that hangs after a fault.
func TestCallOutlivesAFault(t *testing.T) {
	t.Parallel()
	f, release := newFaults(), make(chan struct{})
	defer close(release)
	_, err := untilFault(t.Context(), f, func() (int, error) {
		f.report(errors.New("elsewhere"))
		<-release
		return 1, nil
	})
	if err == nil || err.Error() != "elsewhere" {
		t.Errorf("got %v", err)
	}
}

// After a fault in one of its jobs, a scheduler of etcd takes more jobs until the member stops. The
// member's own goroutine, which knows nothing of the fault, would otherwise end the process.
func TestSchedulerOutlivesAFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, end := newFaults(), make(chan struct{})
		stopping := func() <-chan struct{} { return end }
		f.stopping.Store(&stopping)
		lg := f.logger(nil)
		scheduler := schedule.NewFIFOScheduler(lg)
		scheduler.Schedule(schedule.NewJob("apply", func(context.Context) {
			lg.Fatal("the disk is full")
		}))
		<-f.any
		synctest.Wait()
		scheduler.Schedule(schedule.NewJob("apply", func(context.Context) {
			t.Error("a job ran after a fault")
		}))
		close(end)
		scheduler.Stop()
	})
}

// A member that has started closes the channel for which the scheduler waits when it stops.
func TestSchedulerWaitsForTheStop(t *testing.T) {
	t.Parallel()
	e, err := Start(t.Context(), Options{Dir: t.TempDir(), Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	stopping := (*e.faults.stopping.Load())()
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if stopping == nil {
		t.Fatal("the scheduler would wait for ever")
	}
	<-stopping
}
