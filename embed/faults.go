package embed

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// faults turns etcd's ways to end the process into errors. etcd calls its logger's Fatal and Panic when it can't go on,
// often on goroutines that nobody can recover from: the entry becomes the first error, and only that goroutine ends.
type faults struct {
	any  chan struct{} // closed by the first
	err  error         // the first; readable when any is closed
	once sync.Once
}

func newFaults() *faults { return &faults{any: make(chan struct{})} }

// logger returns lg with the ends replaced. A nil lg logs nothing but ends nothing either.
func (f *faults) logger(lg *zap.Logger) *zap.Logger {
	if lg == nil {
		lg = zap.NewNop()
	}
	return lg.WithOptions(zap.WithFatalHook(f), zap.WithPanicHook(f))
}

// OnWrite implements zapcore.CheckWriteHook.
func (f *faults) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	f.report(entryError(entry.Message, fields))
	runtime.Goexit()
}

// report keeps the first: the others follow from it.
func (f *faults) report(err error) {
	f.once.Do(func() {
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

// call runs run on a goroutine of its own, so that a Goexit ends no caller's, and returns its error or what ended it.
// When etcd waits for ever on a goroutine that ended, so does this one: the fault comes back and it stays behind.
// So it does when the disk does not answer and ctx has ended. If run succeeds after that, undo ends what it made.
func (f *faults) call(ctx context.Context, run func() error, undo func()) error {
	done := make(chan error, 1)
	var settled atomic.Bool // by the result, or by nobody waiting for it
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- fmt.Errorf("etcd: %s", firstLine(fmt.Sprint(r)))
			}
		}()
		err := run()
		if settled.CompareAndSwap(false, true) {
			done <- err
		} else if err == nil {
			undo()
		}
	}()
	select {
	case err := <-done:
		return err
	case <-f.any:
		return f.err
	case <-ctx.Done():
	}
	abandon := time.NewTimer(abandonAfter)
	defer abandon.Stop()
	select {
	case err := <-done:
		return err
	case <-f.any:
		return f.err
	case <-abandon.C:
		if !settled.CompareAndSwap(false, true) {
			return <-done
		}
		return context.Cause(ctx)
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
