package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// faults turns etcd's ways of exiting the process into errors. When etcd can't continue, it calls
// its logger's Fatal or Panic, often on goroutines where the panic can't be recovered. With faults,
// the log entry becomes an error, and only that goroutine ends. If it is the goroutine of a call,
// the call returns the error.
type faults struct {
	any  chan struct{} // closed by the first fault
	err  error         // the first fault; valid once any is closed
	once sync.Once

	// missing returns why etcd cannot find its files, or nil if they are there. It is nil until
	// [Etcd.openDir] sets it, and for an ephemeral member.
	missing func() error

	// stopping returns a channel that is closed when the member begins to stop. It is nil until the
	// member starts.
	stopping atomic.Pointer[func() <-chan struct{}]
}

func newFaults() *faults { return &faults{any: make(chan struct{})} }

// logger returns lg with Fatal and Panic replaced so that they report a fault. If lg is nil, the
// returned logger reports faults but logs nothing.
func (f *faults) logger(lg *zap.Logger) *zap.Logger {
	if lg == nil {
		lg = zap.NewNop()
	}
	return lg.WithOptions(zap.WithFatalHook(f), zap.WithPanicHook(f))
}

// OnWrite implements zapcore.CheckWriteHook.
func (f *faults) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	f.report(entryError(entry.Message, fields))
	for frame := range frames() {
		switch {
		case strings.Contains(frame.Function, "/embed.untilPanic["): // recovers panics
			panic(f.err)
		case strings.HasSuffix(frame.Function, "/schedule.(*fifo).run"):
			// A scheduler without its goroutine panics at the next job. The member schedules jobs
			// until it begins to stop.
			if stopping := f.stopping.Load(); stopping != nil {
				<-(*stopping)()
			}
		}
	}
	runtime.Goexit()
}

// frames returns the stack of the caller's goroutine, innermost function first.
func frames() iter.Seq[runtime.Frame] {
	callers := make([]uintptr, 128)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	return func(yield func(runtime.Frame) bool) {
		for frame, more := frames.Next(); yield(frame) && more; {
			frame, more = frames.Next()
		}
	}
}

// report records the first fault and ignores the others, which are consequences of it.
func (f *faults) report(err error) {
	f.once.Do(func() {
		if f.missing != nil && errors.Is(err, fs.ErrNotExist) {
			err = cmp.Or(f.missing(), err)
		}
		f.err = err
		close(f.any)
	})
}

func entryError(message string, fields []zapcore.Field) error {
	var cause error
	var details []string
	for _, field := range fields {
		switch field.Type {
		case zapcore.ErrorType:
			if err, ok := field.Interface.(error); ok {
				cause = err
			}
		case zapcore.StringType:
			details = append(details, field.Key+" "+field.String)
		}
	}
	message = firstLine(message)
	if len(details) > 0 {
		message += " [" + strings.Join(details, ", ") + "]"
	}
	if cause != nil {
		return fmt.Errorf("etcd: %s: %w", message, cause)
	}
	return errors.New("etcd: " + message)
}

// call calls run on a separate goroutine, so that a Goexit does not end the caller's, and returns
// its error or the fault that ended it. If run blocks because it waits for a goroutine that ended
// with a fault, call returns the fault and abandons run. If run blocks because the disk does not
// respond, call abandons it once ctx has ended. If an abandoned run succeeds later, undo is called.
func (f *faults) call(ctx context.Context, run func() error, undo func()) error {
	done := make(chan error, 1)
	var decided atomic.Bool // set when run returns or is abandoned
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- fmt.Errorf("etcd: %s", firstLine(fmt.Sprint(r)))
			}
		}()
		err := run()
		if decided.CompareAndSwap(false, true) {
			done <- err
		} else if err == nil {
			undo()
		}
	}()
	// abandoned returns err, unless run has returned in the meantime.
	abandoned := func(err error) error {
		if decided.CompareAndSwap(false, true) {
			return err
		}
		return <-done
	}
	select {
	case err := <-done:
		return err
	case <-f.any:
		return abandoned(f.err)
	case <-ctx.Done():
	}
	abandon := time.NewTimer(abandonAfter)
	defer abandon.Stop()
	select {
	case err := <-done:
		return err
	case <-f.any:
		return abandoned(f.err)
	case <-abandon.C:
		return abandoned(context.Cause(ctx))
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
